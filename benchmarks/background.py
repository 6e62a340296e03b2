"""Looking at something again and again while a benchmark runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeatedly(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call ``look`` on a thread, with pauses of ``seconds``, while the block runs."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
