"""The round loop: drives any `flwr.serverapp.strategy.Strategy` through its four public methods."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedavg_app.cohort import CohortGrid
from fedavg_app.errors import RunError
from fedavg_app.exchange import exchange
from fedavg_app.history import RoundRecord, accuracy_curve, rounds_to_target
from fedavg_app.sampling import sample
from fedavg_app.wire import count_bytes
from strategies.base import CohortStrategy
from strategies.foreign import Screened

logger = logging.getLogger("fedavg_app.rounds")

# Evaluates the global model: arrays -> (mean loss, accuracy).
Evaluate = Callable[[ArrayRecord], tuple[float, float]]
# After this many rounds in a row without one usable reply a run fails instead of going on.
MAX_EMPTY_ROUNDS = 3


@dataclass(frozen=True)
class Plan:
    """How many rounds, of whom, at which learning rate; the papers' symbols as in `RunConfig`."""

    num_rounds: int
    fraction_train: float
    fraction_evaluate: float
    learning_rate: float
    learning_rate_decay: float
    evaluate_every: int
    target_accuracy: float | None
    round_timeout: float | None
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The final model, the history, and the rounds to the target (None if not reached)."""

    arrays: ArrayRecord
    records: list[RoundRecord]
    rounds_to_target: float | None


@dataclass(frozen=True)
class _Exchanged:
    """What went out and came back for one half of a round, replies in the order of sending."""

    sent: list[Message]
    replies: list[Message]

    @property
    def silent(self) -> dict[int, str]:
        """The nodes that did not answer."""
        answered = {reply.metadata.src_node_id for reply in self.replies}
        asked = (message.metadata.dst_node_id for message in self.sent)
        return {node: "no reply in time" for node in asked if node not in answered}


def run_rounds(
    grid: Grid,
    strategy: CohortStrategy | Screened,
    arrays: ArrayRecord,
    nodes: Sequence[int],
    plan: Plan,
    client_config: ConfigRecord,
    evaluate: Evaluate,
    on_round: Callable[[RoundRecord], None],
) -> Outcome:
    """Run federated training until the target accuracy or the last round.

    Args:
        grid: Carries the messages.
        strategy: The protocol.
        arrays: The initial model.
        nodes: The node id of every partition, in their order.
        plan: What to do.
        client_config: Goes to the clients, with the round's "learning-rate" added.
        evaluate: Tests the global model.
        on_round: Is told of every round as it ends, round 0 (the initial model) first.

    Raises:
        RunError: No usable reply in `MAX_EMPTY_ROUNDS` rounds in a row.
    """
    started = time.monotonic()
    loss, accuracy = evaluate(arrays)
    records = [
        RoundRecord(0, test_loss=loss, accuracy=accuracy, seconds=time.monotonic() - started)
    ]
    on_round(records[0])
    empty_rounds = 0
    for server_round in range(1, plan.num_rounds + 1):
        started = time.monotonic()
        rate = plan.learning_rate * plan.learning_rate_decay ** (server_round - 1)
        config = ConfigRecord({**client_config, "learning-rate": rate})
        exchanged = _exchange(
            grid, strategy.configure_train, server_round, arrays, config, nodes, "train", plan
        )
        new_arrays, metrics = strategy.aggregate_train(server_round, exchanged.replies)
        rejected = {**exchanged.silent, **strategy.rejected}
        empty_rounds = 0 if new_arrays is not None else empty_rounds + 1
        if empty_rounds == MAX_EMPTY_ROUNDS:
            reasons = "; ".join(sorted(set(rejected.values()))[:3]) or "none was asked"
            raise RunError(f"no usable reply in {empty_rounds} rounds in a row: {reasons}")
        arrays = new_arrays if new_arrays is not None else arrays

        client_metrics: dict[str, float] = {}
        if plan.fraction_evaluate > 0 and _due(server_round, plan):
            evaluated = _exchange(
                grid,
                strategy.configure_evaluate,
                server_round,
                arrays,
                config,
                nodes,
                "evaluate",
                plan,
            )
            client_metrics = _scalars(strategy.aggregate_evaluate(server_round, evaluated.replies))
            rejected |= evaluated.silent | strategy.rejected
        tested = evaluate(arrays) if _due(server_round, plan) else (None, None)
        records.append(
            RoundRecord(
                round=server_round,
                participants=len(exchanged.sent),
                rejected=rejected,
                learning_rate=rate,
                train_loss=_scalars(metrics).get("train-loss"),
                test_loss=tested[0],
                accuracy=tested[1],
                client_metrics=client_metrics,
                bytes_down=sum(map(count_bytes, exchanged.sent)),
                bytes_up=sum(map(count_bytes, exchanged.replies)),
                seconds=time.monotonic() - started,
            )
        )
        on_round(records[-1])
        if plan.target_accuracy and (tested[1] or 0.0) >= plan.target_accuracy:
            break
    target = plan.target_accuracy
    reached = rounds_to_target(accuracy_curve(records), target) if target else None
    return Outcome(arrays, records, reached)


def _due(server_round: int, plan: Plan) -> bool:
    return server_round % plan.evaluate_every == 0 or server_round == plan.num_rounds


def _exchange(
    grid: Grid,
    configure: Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]],
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    nodes: Sequence[int],
    purpose: str,
    plan: Plan,
) -> _Exchanged:
    """Let the strategy write to the round's cohort; collect replies in the clients' order.

    Replies arrive in any order, and sums of floats depend on it: sorted by partition, the same
    replies give the same model.
    """
    fraction = plan.fraction_train if purpose == "train" else plan.fraction_evaluate
    cohort = [
        nodes[client] for client in sample(plan.seed, server_round, purpose, fraction, len(nodes))
    ]
    messages = list(configure(server_round, arrays, config, CohortGrid(grid, cohort)))
    place = {node: number for number, node in enumerate(cohort)}
    replies = exchange(grid, messages, plan.round_timeout)
    replies.sort(key=lambda reply: place.get(reply.metadata.src_node_id, len(place)))
    return _Exchanged(messages, replies)


def _scalars(metrics: MetricRecord | None) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in (metrics or {}).items()
        if isinstance(value, int | float)
    }
