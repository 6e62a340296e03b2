"""Signals whose exceptions are not lost."""

import signal
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Self


class Signals:
    """Keeps what the handlers of SIGINT and SIGTERM raise, to raise it again; a context manager.

    Python drops an exception that is raised in a destructor, or where C calls back, as Ray does.
    Ctrl-C would then not end a run.
    """

    def __init__(self) -> None:
        self._raised: BaseException | None = None
        self._before: dict[int, Callable[..., Any]] = {}

    def __enter__(self) -> Self:
        """Wrap the handlers; only a program's main thread has signals."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, partial(self._handle, handler))
        return self

    def __exit__(self, *_: object) -> None:
        """Put the handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise what a handler has raised before."""
        if self._raised is not None:
            raise self._raised

    def _handle(self, handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            self._raised = error
            raise
