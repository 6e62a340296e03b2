"""Redirects what Flower's strategies log to this project's logger.

They write several INFO lines in every round to the logger "flwr", which has a handler of its own:
the lines would go through a live display, and a second time to the root logger's handlers.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

FLOWER = logging.getLogger("flwr")
logger = logging.getLogger("fedavg_app.strategies")


@contextmanager
def as_debug_messages() -> Iterator[None]:
    """Log what this thread sends to Flower's logger to ours instead, INFO as DEBUG.

    DEBUG messages go to a run's ``run.log`` and not to the console; warnings keep their level.
    """
    thread, level = threading.get_ident(), FLOWER.level

    def forward(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return record.levelno >= level
        if record.levelno > logging.INFO:
            logger.log(record.levelno, "%s", record.getMessage())
        else:
            logger.debug("%s", record.getMessage().replace("\t", "  "))
        return False

    FLOWER.addFilter(forward)
    FLOWER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        FLOWER.setLevel(level)
        FLOWER.removeFilter(forward)
