"""What a person sees while a sweep goes: a line for every run that ended, and the time left."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from reproduction.records import Record


class SweepProgress:
    """A context manager that is told of every run that ends.

    Args:
        title: The experiment's name.
        total: How many runs it has.
        missing: How many of them are to be done.
        jobs: How many go at a time.
        console: Where to write.
    """

    def __init__(
        self, title: str, total: int, missing: int, jobs: int, console: Console | None = None
    ) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False)
        self._title, self._total, self._jobs = title, total, jobs
        self._missing = self._left = missing
        self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f} runs"),
            BarColumn(),
            TextColumn("left {task.description}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("?", total=total, completed=total - missing)

    def __enter__(self) -> "SweepProgress":
        """Start the display."""
        done = self._total - self._missing
        self.say(f"{self._title}: {done} of {self._total} runs are done, {self._jobs} at a time")
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last state on the screen."""
        self._bar.stop()

    def say(self, line: str) -> None:
        """Show a line."""
        self._console.print(line)

    def ended(self, name: str, record: Record | None, seconds: float, last_line: str) -> None:
        """Show a run that ended.

        Args:
            name: Which one, for people.
            record: What it left; None if it failed.
            seconds: How long it took.
            last_line: The last thing it said, which tells why it failed.
        """
        self._left -= 1
        result = f"failed: {last_line}" if record is None else describe(record)
        left = self._time_left()
        place = f"{self._total - self._left}/{self._total}"
        self.say(f"{place}  {name}: {result}, {seconds:.0f} s  left {left}")
        self._bar.update(self._task, advance=1, description=left)

    def _time_left(self) -> str:
        """Estimate from the runs of this sweep: the rest takes as long on average."""
        elapsed = time.monotonic() - self._started
        seconds = round(elapsed / (self._missing - self._left) * self._left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def describe(record: Record) -> str:
    """Return a run's result in a few words."""
    best = record.summary["best-accuracy"]
    parts: list[str] = ["diverged"] if record.status == "diverged" else []
    if best is not None:
        parts.append(f"best accuracy {best:.4f}")
    if (rounds := record.summary["rounds-to-target"]) is not None:
        parts.append(f"{rounds:.1f} rounds to {record.summary['target-accuracy']:g}")
    return ", ".join(parts)
