"""The memory and the CPU time of processes."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil


@dataclass
class Usage:
    """What the child processes have used so far.

    Attributes:
        memory: The most bytes that they had together; shared pages are divided.
        cpu: The seconds of CPU time of each, by process.
    """

    memory: int = 0
    cpu: dict[int, float] = field(default_factory=dict)

    def measure(self) -> None:
        """Add the use of the processes that are running now."""
        memory = 0
        for process in psutil.Process().children(recursive=True):
            try:
                memory += process.memory_full_info().pss
                times = process.cpu_times()
            except psutil.Error:
                continue
            self.cpu[process.pid] = times.user + times.system
        self.memory = max(self.memory, memory)


@contextmanager
def repeatedly(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function at this interval, in seconds, while the context lasts."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(seconds):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@contextmanager
def measured() -> Iterator[Usage]:
    """Yield what the child processes use while the context lasts; it is measured throughout."""
    usage = Usage()
    with repeatedly(usage.measure, 0.2):
        yield usage
