"""The log of a training: ``run.log`` in its folder, with the traceback of every error."""

import logging
from pathlib import Path

LOG_FILE = "run.log"
# Every logger of this project is below this one.
PROJECT = "fedavg_app"

logger = logging.getLogger("fedavg_app.log_file")


class LogFile:
    """Writes what is logged while a training goes to a file, with this project's debug messages.

    Args:
        folder: The training's folder; a resumed training goes on with the file that is there.
    """

    def __init__(self, folder: Path) -> None:
        self._handler = logging.FileHandler(folder / LOG_FILE, encoding="utf-8", delay=True)
        self._handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
        )
        self._level = logging.NOTSET

    def open(self) -> None:
        """Begin to write."""
        project = logging.getLogger(PROJECT)
        self._level = project.level
        project.setLevel(logging.DEBUG)
        logging.getLogger().addHandler(self._handler)

    def close(self, error: BaseException | None) -> None:
        """Write the error that ended the training, with its traceback, and end."""
        if error is not None:
            logger.debug("the training was ended by an error", exc_info=error)
        logging.getLogger().removeHandler(self._handler)
        logging.getLogger(PROJECT).setLevel(self._level)
        self._handler.close()
