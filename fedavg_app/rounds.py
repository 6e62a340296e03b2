"""The round loop: drives any `flwr.serverapp.strategy.Strategy` through its four public methods."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid

from fedavg_app.errors import RunError
from fedavg_app.evaluation import Evaluate
from fedavg_app.history import RoundRecord, accuracy_curve, rounds_to_target, with_totals
from fedavg_app.nodes import Roster
from fedavg_app.plan import Plan
from fedavg_app.post import Post
from fedavg_app.wire import count_bytes
from strategies.base import CohortStrategy
from strategies.foreign import Screened

logger = logging.getLogger("fedavg_app.rounds")

# After this many rounds in a row without one usable reply a run fails instead of going on.
MAX_EMPTY_ROUNDS = 3


@dataclass(frozen=True)
class Outcome:
    """The final model, the history, and the rounds to the target (None if not reached)."""

    arrays: ArrayRecord
    records: list[RoundRecord]
    rounds_to_target: float | None


def run_rounds(
    grid: Grid,
    strategy: CohortStrategy | Screened,
    arrays: ArrayRecord,
    roster: Roster,
    plan: Plan,
    client_config: ConfigRecord,
    evaluate: Evaluate,
    on_round: Callable[[RoundRecord, ArrayRecord], None],
    done: Sequence[RoundRecord] = (),
) -> Outcome:
    """Run federated training until the target accuracy or the last round.

    Args:
        grid: Carries the messages.
        strategy: The protocol.
        arrays: The initial model, or that of the last round done.
        roster: The nodes, assembled.
        plan: What to do.
        client_config: Goes to the clients, with the round's "learning-rate" added.
        evaluate: Tests the global model.
        on_round: Is told of every round as it ends, with the model, round 0 (the initial model)
            first.
        done: The rounds of this run that are over already; it goes on after them.

    Raises:
        RunError: No usable reply in `MAX_EMPTY_ROUNDS` rounds in a row, or no node is there.
    """
    records = list(done)
    if not records:
        started = time.monotonic()
        loss, accuracy = evaluate(arrays)
        seconds = time.monotonic() - started
        start = RoundRecord(0, test_loss=loss, accuracy=accuracy, seconds=seconds)
        records.append(with_totals(start, start))
        on_round(records[0], arrays)
    post = Post(grid, roster, plan)
    empty_rounds = 0
    while records[-1].round < plan.num_rounds and not _reached(records, plan):
        server_round = records[-1].round + 1
        started = time.monotonic()
        roster.wait(plan.node_timeout)
        rate = plan.rate(server_round)
        config = ConfigRecord({**client_config, "learning-rate": rate})
        cohort = post.cohort(server_round, "train")
        trained = post.exchange(
            cohort, strategy.configure_train(server_round, arrays, config, cohort), "train"
        )
        bytes_down = sum(map(count_bytes, trained.sent))
        new_arrays, metrics = strategy.aggregate_train(server_round, trained.replies())
        rejected = trained.silent | strategy.rejected
        arrays = new_arrays if new_arrays is not None else arrays
        if new_arrays is not None:
            empty_rounds = 0
        elif not strategy.recovering:
            empty_rounds += 1

        due = server_round % plan.evaluate_every == 0 or server_round == plan.num_rounds
        client_metrics: dict[str, float] = {}
        if plan.fraction_evaluate > 0 and due:
            cohort = post.cohort(server_round, "evaluate")
            evaluated = post.exchange(
                cohort,
                strategy.configure_evaluate(server_round, arrays, config, cohort),
                "evaluate",
            )
            client_metrics = _scalars(
                strategy.aggregate_evaluate(server_round, evaluated.replies())
            )
            rejected |= evaluated.silent | strategy.rejected
        test_loss, accuracy_now = evaluate(arrays) if due else (None, None)
        record = RoundRecord(
            round=server_round,
            participants=len(trained.sent),
            rejected=rejected,
            learning_rate=rate,
            train_loss=_scalars(metrics).get("train-loss"),
            test_loss=test_loss,
            accuracy=accuracy_now,
            client_metrics=client_metrics,
            bytes_down=bytes_down,
            bytes_up=trained.bytes_up,
            theory_bits_down=strategy.theory_bits_down,
            theory_bits_up=strategy.theory_bits_up,
            seconds=time.monotonic() - started,
        )
        records.append(with_totals(record, records[-1]))
        on_round(records[-1], arrays)
        if empty_rounds == MAX_EMPTY_ROUNDS:
            reasons = "; ".join(sorted(set(rejected.values()))[:3]) or "none was asked"
            raise RunError(f"no usable reply in {empty_rounds} rounds in a row: {reasons}")
    return conclude(arrays, records, plan)


def _reached(records: Sequence[RoundRecord], plan: Plan) -> bool:
    """Return whether the last round reached the target; the initial model does not count."""
    return records[-1].round > 0 and plan.reached(records[-1].accuracy)


def conclude(arrays: ArrayRecord, records: list[RoundRecord], plan: Plan) -> Outcome:
    """Return the outcome of a training that ended with these arrays."""
    target = plan.target_accuracy
    reached = rounds_to_target(accuracy_curve(records), target) if target else None
    return Outcome(arrays, records, reached)


def _scalars(metrics: MetricRecord | None) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in (metrics or {}).items()
        if isinstance(value, int | float)
    }
