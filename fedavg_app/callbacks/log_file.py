"""The log of a training: ``run.log`` in its folder, with the traceback of every error."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG_FILE = "run.log"
# Every logger of this project is below this one.
PROJECT = "fedavg_app"

logger = logging.getLogger("fedavg_app.log_file")


@contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Write what is logged meanwhile to a file, with this project's debug messages.

    The error that ends the training is written with its traceback.

    Args:
        folder: The training's folder; a resumed training goes on with the file that is there.
    """
    handler = logging.FileHandler(folder / LOG_FILE, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root, project = logging.getLogger(), logging.getLogger(PROJECT)
    level = project.level
    project.setLevel(logging.DEBUG)
    root.addHandler(handler)
    try:
        yield
    except BaseException as error:
        logger.debug("the training was ended by an error", exc_info=error)
        raise
    finally:
        root.removeHandler(handler)
        project.setLevel(level)
        handler.close()
