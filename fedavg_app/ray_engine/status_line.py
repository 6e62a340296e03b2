"""What a run is doing before its first round."""

from threading import RLock, Timer

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

# Nothing is shown of a run that starts sooner.
SILENT_SECONDS = 2.0


class StatusLine:
    """A context manager that shows the step that it was told last: live on a terminal, else a line.

    Args:
        console: Where to print; by default stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False)
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        self._live = Progress(*columns, console=self._console, transient=True)
        self._task = self._live.add_task("starting")
        self._shown, self._lock = False, RLock()
        self._timer = Timer(SILENT_SECONDS, self._show)

    def __enter__(self) -> "StatusLine":
        """Begin to wait for what takes long."""
        self._timer.start()
        return self

    def __call__(self, step: str) -> None:
        """Say what is done from now on."""
        with self._lock:
            self._live.update(self._task, description=step)
            self._print()

    def __exit__(self, *_: object) -> None:
        """Leave nothing on a terminal."""
        self._timer.cancel()
        self._timer.join()
        if self._console.is_terminal:
            self._live.stop()

    def _show(self) -> None:
        with self._lock:
            self._shown = True
            if self._console.is_terminal:
                self._live.start()
            self._print()

    def _print(self) -> None:
        if self._shown and not self._console.is_terminal:
            self._console.print(self._live.tasks[0].description)
