"""A run's rounds as TensorBoard shows them, while it goes: `tensorboard --logdir runs`."""

from importlib.util import find_spec
from pathlib import Path

from fedavg_app.errors import ConfigError
from fedavg_app.history import RoundRecord

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
        # An extra that takes a second to import: only for those who ask for it.
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / FOLDER), flush_secs=FLUSH_SECONDS)

    def add(self, record: RoundRecord) -> None:
        """Take in one round."""
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
        self._writer.close()
