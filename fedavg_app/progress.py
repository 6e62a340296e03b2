"""What a person sees while a run goes: one live line on a terminal, plain lines elsewhere."""

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedavg_app.history import RoundRecord

# Without a terminal, a line at most this often (and for the first and the last round).
PLAIN_SECONDS = 1.0


class RoundProgress:
    """A context manager that is told of every round and shows it."""

    def __init__(self, num_rounds: int, console: Console | None = None) -> None:
        self.console = console or Console(soft_wrap=True, highlight=False, markup=False)
        self._num_rounds = num_rounds
        self._bytes = self._rejected = 0
        self._first_round = 0
        self._best = 0.0
        self._tested = ""
        self._started = time.monotonic()
        self._last_line = float("-inf")
        self._bar: Progress | None = None
        self._bar_task = TaskID(0)

    def __enter__(self) -> "RoundProgress":
        """Start the display."""
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
                BarColumn(bar_width=6),
                TextColumn("{task.description}"),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar_task = self._bar.add_task("", total=self._num_rounds)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last state on the screen."""
        if self._bar is not None:
            self._bar.stop()

    def go_on(self, done: Sequence[RoundRecord]) -> None:
        """Take in the rounds that are over already, without showing them."""
        for record in done:
            self._count(record)
            self._first_round = record.round

    def _count(self, record: RoundRecord) -> None:
        self._bytes += record.bytes_down + record.bytes_up
        self._rejected += len(record.rejected)
        self._best = max(self._best, record.accuracy or 0.0)

    def update(self, record: RoundRecord) -> None:
        """Show one round."""
        self._count(record)
        if self._bar is not None:
            self._bar.update(
                self._bar_task, completed=record.round, description=self._brief(record)
            )
            return
        now = time.monotonic()
        if now - self._last_line >= PLAIN_SECONDS or record.round == self._num_rounds:
            self._last_line = now
            place = f"round {record.round:>{len(str(self._num_rounds))}}/{self._num_rounds}"
            self.console.print(f"{place}  {self._describe(record)}  left {self._left(record)}")

    def _brief(self, record: RoundRecord) -> str:
        """Return what fits beside the bar on a terminal of 80 columns."""
        if record.accuracy is not None and record.test_loss is not None:
            self._tested = f"accuracy {record.accuracy:.4f}  loss {record.test_loss:.4f}"
        return "  ".join([self._tested, *self._traffic()])

    def _describe(self, record: RoundRecord) -> str:
        parts = []
        if record.accuracy is not None:
            parts.append(f"accuracy {record.accuracy:.4f} (best {self._best:.4f})")
        if record.test_loss is not None:
            parts.append(f"loss {record.test_loss:.4f}")
        if record.train_loss is not None:
            parts.append(f"train loss {record.train_loss:.4f}")
        if "accuracy" in record.client_metrics:
            parts.append(f"on clients {record.client_metrics['accuracy']:.4f}")
            if "accuracy-p10" in record.client_metrics:
                parts[-1] += f" (a tenth below {record.client_metrics['accuracy-p10']:.4f})"
        return "  ".join([*parts, *self._traffic()])

    def _traffic(self) -> list[str]:
        sent = [f"sent {decimal(self._bytes)}"] if self._bytes else []
        return [*sent, f"rejected {self._rejected}"] if self._rejected else sent

    def _left(self, record: RoundRecord) -> str:
        rounds = record.round - self._first_round
        if not rounds:
            return "?"
        elapsed = time.monotonic() - self._started
        seconds = round(elapsed / rounds * (self._num_rounds - record.round))
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
