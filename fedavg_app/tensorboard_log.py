"""A run's rounds as TensorBoard shows them, while it goes: `tensorboard --logdir runs`."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedavg_app.errors import ConfigError
from fedavg_app.history import RoundRecord

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
FLUSH_SECONDS = 2


def check() -> None:
    """Check that the package is there.

    Raises:
        ConfigError: It is not.
    """
    if find_spec("tensorboard") is None:
        fix = "needs the package tensorboard; run: pip install 'fedavg-app[tensorboard]'"
        raise ConfigError("tensorboard", True, fix)


class TensorBoardLog:
    """Is told of every round, and writes what is known of it by the round's number.

    Args:
        folder: The run's folder; the log goes to a folder in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._writer: SummaryWriter | None = None

    def add(self, record: RoundRecord) -> None:
        """Take in one round; those that a log in the folder has from it on are hidden."""
        if self._writer is None:
            # An extra that takes a second to import: only for those who ask for it.
            from torch.utils.tensorboard import SummaryWriter

            # A run that goes on does its last rounds again, from its last checkpoint on.
            self._writer = SummaryWriter(
                str(self._folder), flush_secs=FLUSH_SECONDS, purge_step=record.round
            )
        scalars = {
            "accuracy": record.accuracy,
            "loss/test": record.test_loss,
            "loss/training": record.train_loss,
            "bytes/up": record.bytes_up,
            "bytes/down": record.bytes_down,
            "rejected": len(record.rejected),
        }
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name, value, record.round)

    def close(self) -> None:
        """Write what is left to write."""
        if self._writer is not None:
            self._writer.close()
