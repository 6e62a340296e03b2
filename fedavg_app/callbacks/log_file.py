"""The file ``run.log`` of a training."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedavg_app.results.run_folder import write_error

LOG_FILE = "run.log"
# Every logger of this project is below this one.
PROJECT = "fedavg_app"

logger = logging.getLogger("fedavg_app.callbacks")


class LogFile(logging.FileHandler):
    """A handler that stops at the first line that cannot be written.

    logging would print a traceback for each line of a run on a full disk.

    Attributes:
        error: Why it has stopped; None while it writes.
    """

    error: OSError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless an earlier write failed."""
        if self.error is None:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - as logging has it
        """Keep the error of the file; report other errors as logging does."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.error = error
        else:
            super().handleError(record)

    def close(self) -> None:
        """Close the file; what could not be written is still in its buffer."""
        try:
            super().close()
        except OSError as error:
            self.error = error


@contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Write what is logged meanwhile to `LOG_FILE`, with this project's debug messages.

    The error that ends the training is written with its traceback. If the file could not be
    written, and no error says why the training ended, a line says so.

    Args:
        folder: The training's folder; a resumed training appends to the existing file.
    """
    handler = LogFile(folder / LOG_FILE, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root, project = logging.getLogger(), logging.getLogger(PROJECT)
    level, failed = project.level, False
    project.setLevel(logging.DEBUG)
    root.addHandler(handler)
    try:
        yield
    except BaseException as error:
        failed = True
        logger.debug("the training was ended by an error", exc_info=error)
        raise
    finally:
        root.removeHandler(handler)
        project.setLevel(level)
        handler.close()
        if handler.error is not None and not failed:
            logger.warning("%s is not complete: %s", LOG_FILE, write_error(folder, handler.error))
