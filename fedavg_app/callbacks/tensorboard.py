"""TensorBoard: a training's rounds while it goes; `tensorboard --logdir runs` shows them."""

from typing import TYPE_CHECKING, ClassVar

from flwr.app import ArrayRecord

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.callbacks.scalars import scalars
from fedavg_app.results.metrics import RoundMetrics, TrainingResult

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
FLUSH_SECONDS = 2


class TensorBoard(Callback):
    """A callback that logs every round to a folder in the run's.

    Args:
        run: The training.
    """

    requires: ClassVar[str] = "tensorboard"

    def __init__(self, run: TrainingRun) -> None:
        self._folder = run.folder / FOLDER
        self._writer: SummaryWriter | None = None

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Log a round; what an earlier log in the folder has from it on is hidden."""
        del model
        if self._writer is None:
            # An extra that takes a second to import: only for those who ask for it.
            from torch.utils.tensorboard import SummaryWriter

            # A resumed run repeats the rounds after its last checkpoint.
            self._writer = SummaryWriter(
                str(self._folder), flush_secs=FLUSH_SECONDS, purge_step=metrics.round
            )
        for name, value in scalars(metrics).items():
            self._writer.add_scalar(name, value, metrics.round)

    def on_train_end(self, result: TrainingResult) -> None:
        """Write what is not written yet."""
        del result
        if self._writer is not None:
            self._writer.close()
