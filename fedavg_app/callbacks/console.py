"""Prints the progress: a live line on a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import rich.console
from flwr.app import ArrayRecord
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedavg_app.budget import duration
from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.results.checkpoint import has_checkpoint
from fedavg_app.results.history import RoundMetrics, TrainingResult, virtual_times
from tasks.objective import LOSS, Objective, show_metric

# Without a terminal a line is printed at most this often, and for the first and the last round.
PLAIN_SECONDS = 1.0
# A terminal with this many columns has room for all numbers of a round.
WIDE_COLUMNS = 120


class Console(Callback):
    """A callback that prints how a training begins, goes and ends.

    Args:
        run: The training.
        console: Where to print; by default stdout.
    """

    def __init__(self, run: TrainingRun, console: rich.console.Console | None = None) -> None:
        self._run = run
        self._console = console or rich.console.Console(
            soft_wrap=True, highlight=False, markup=False
        )
        self._num_rounds = run.plan.num_rounds
        self._bytes = self._rejected = 0
        self._best: float | None = None
        for metrics in run.completed:
            self._count(metrics)
        self._evaluation = ""
        self._last_line = -math.inf
        # Without a terminal the bar is not shown; it only tells how much time is left.
        self._bar = Progress(
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.description}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=self._console,
            expand=True,
            speed_estimate_period=math.inf,
            disable=not self._console.is_terminal,
        )
        first = run.completed[-1].round if run.completed else 0
        self._bar.add_task("", total=self._num_rounds, completed=first)
        self._print_setting()

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Show a round."""
        del model
        self._count(metrics)
        (task,) = self._bar.tasks
        if self._console.is_terminal:
            self._bar.start()
            wide = self._console.width >= WIDE_COLUMNS
            text = self._describe(metrics) if wide else self._brief(metrics)
            self._bar.update(task.id, completed=metrics.round, description=text)
            return
        self._bar.update(task.id, completed=metrics.round)
        now = time.monotonic()
        if now - self._last_line >= PLAIN_SECONDS or metrics.round == self._num_rounds:
            self._last_line = now
            place = f"round {metrics.round:>{len(str(self._num_rounds))}}/{self._num_rounds}"
            left = TimeRemainingColumn().render(task)
            self._console.print(f"{place}  {self._describe(metrics)}  ETA {left}")

    def on_train_end(self, result: TrainingResult) -> None:
        """Leave the last round on the screen; say how the training ended, if it did not fail."""
        self._bar.stop()
        if result.error is None:
            self._print_result(result)
        elif result.status == "interrupted":
            self._print_interruption(result)

    def _print_setting(self) -> None:
        config, plan = self._run.config, self._run.plan
        self._console.print(
            f"{config.method} on {self._run.task.name}: {config.setting}, {self._run.local_work}, "
            f"learning rate {plan.learning_rate:g}, target {self._target()}, seed {config.seed}"
        )
        self._console.print(f"data: {self._run.data.description}")
        self._console.print(f"results: {self._run.folder}")

    def _target(self) -> str:
        """Return the target as text, with the objective's name unless it is the accuracy."""
        plan = self._run.plan
        if plan.target is None:
            return "none"
        name = "" if plan.objective == Objective() else f"{plan.objective.name} "
        return f"{name}{plan.target:g}"

    def _print_result(self, result: TrainingResult) -> None:
        plan, rounds = self._run.plan, result.history[-1].round
        target, objective = plan.target, plan.objective
        best = plan.best(result.history)
        found = f"best {objective.name}" + (" on clients" if plan.on_clients else "")
        if best is None:
            found += " not known"
        else:
            tested = best.metrics
            of = tested.partial.get(f"client_metrics.{objective.name}") if plan.on_clients else None
            shown = objective.shown(best.value)
            found += f" {shown}{f' ({of})' if of else ''} in round {tested.round}"
            if (by := tested.validation_metrics.get(objective.name)) is not None:
                found = f"test {objective.name} {shown} in round {tested.round}, the best on "
                found += f"validation examples ({objective.shown(by)})"
        if target is None:
            reached = "no target"
        elif result.rounds_to_target is None:
            reached = f"target {target:g} not reached in {rounds} rounds"
        else:
            reached = f"{result.rounds_to_target:.1f} rounds to {target:g}"
        if rounds < plan.num_rounds and plan.out_of_patience(result.history):
            since = rounds - (best.metrics.round if best else 0)
            reached += f"; stopped after {since} rounds without a better one"
        if plan.budget:
            reached += f"; {plan.spent(result.history):.4g} of {plan.budget} spent"
            if rounds >= plan.num_rounds:
                reached += f" in {rounds} rounds: give more num-server-rounds to spend the rest"
        if passed := virtual_times(result.history)[-1]:
            reached += f"; {duration(passed)} on the virtual clock"
        if privacy := result.history[-1].privacy:
            reached += f"; epsilon {privacy['epsilon']:.3g} (zero-out) or "
            reached += f"{privacy['epsilon-replace-one']:.3g} (replace-one)"
            reached += f" at delta {privacy['delta']:g}"
        self._console.print(f"done: {found}; {reached}")
        self._console.print(f"results: {self._run.folder}")

    def _print_interruption(self, result: TrainingResult) -> None:
        rounds = result.history[-1].round if result.history else 0
        self._console.print(f"interrupted after round {rounds}; so far: {self._run.folder}")
        if has_checkpoint(self._run.folder):
            of_checkout = Path(sys.argv[0]).name == "simulation.py"
            program = "python simulation.py" if of_checkout else "fedavg"
            self._console.print(
                f"resume from its last checkpoint with: {program} resume {self._run.folder}"
            )
        elif rounds:
            self._console.print("it cannot be resumed: it has no checkpoint")

    def _count(self, metrics: RoundMetrics) -> None:
        self._bytes += metrics.bytes_down + metrics.bytes_up
        self._rejected += len(metrics.rejected)
        score = self._run.plan.score(metrics)
        if score is not None and self._run.plan.objective.is_better(score, self._best):
            self._best = score

    def _brief(self, metrics: RoundMetrics) -> str:
        """Return what fits beside the bar on a terminal of 80 columns."""
        plan, score = self._run.plan, self._run.plan.score(metrics)
        if score is not None and plan.on_clients:
            self._evaluation = f"on clients {plan.objective.shown(score)}"
        elif score is not None:
            name, test = plan.objective.name, metrics.tested
            shown = {name: test.get(name, math.nan), LOSS: metrics.test_loss or 0.0}
            shown |= {"validation": score} if metrics.validation_metrics else {}
            self._evaluation = "  ".join(_named(name, value) for name, value in shown.items())
        return "  ".join([self._evaluation, *self._traffic()])

    def _describe(self, metrics: RoundMetrics) -> str:
        objective, on_clients = self._run.plan.objective.name, self._run.plan.on_clients
        best = [] if self._best is None else [f"best {show_metric(objective, self._best)}"]
        tested, validation = metrics.tested, metrics.validation_metrics.get(objective)
        names = [objective, *(name for name in tested if name != objective)]
        judged = None if on_clients or validation is not None else objective
        parts = [
            _named(name, tested[name], best if name == judged else [])
            for name in names
            if name in tested
        ]
        if validation is not None:
            parts.insert(1, _named("validation", validation, best))
        if metrics.train_loss is not None:
            of = [metrics.partial["train_loss"]] if "train_loss" in metrics.partial else []
            parts.append(_named("train loss", metrics.train_loss, of))
        for name in dict.fromkeys([objective, *self._run.task.metrics]):
            if name not in metrics.client_metrics:
                continue
            of = [*best] if name == objective and on_clients else []
            if of_all := metrics.partial.get(f"client_metrics.{name}"):
                of.append(of_all)
            for percent in (10, 90):
                key = f"{name}-p{percent}"
                of_some = metrics.partial.get(f"client_metrics.{key}", of_all)
                if (value := metrics.client_metrics.get(key)) is not None:
                    whose = "" if of_some == of_all else f" of {of_some}"
                    of.append(f"{percent}th percentile{whose} {show_metric(name, value)}")
            label = "on clients" if name == objective else f"{name} on clients"
            parts.append(_named(label, metrics.client_metrics[name], of))
        return "  ".join([*parts, *self._traffic()])

    def _traffic(self) -> list[str]:
        moved = [f"traffic {decimal(self._bytes)}"] if self._bytes else []
        return [*moved, f"rejected {self._rejected}"] if self._rejected else moved


def _named(name: str, value: float, remarks: Sequence[str] = ()) -> str:
    return f"{name} {show_metric(name, value)}" + (f" ({', '.join(remarks)})" if remarks else "")
