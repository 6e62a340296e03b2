"""The round loop: drives any `flwr.serverapp.strategy.Strategy` through its four public methods."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedavg_app.cohort import CohortGrid
from fedavg_app.errors import RunError
from fedavg_app.evaluation import Evaluate
from fedavg_app.exchange import stream
from fedavg_app.history import RoundRecord, accuracy_curve, rounds_to_target, with_totals
from fedavg_app.plan import Plan
from fedavg_app.sampling import sample
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
    seconds = time.monotonic() - started
    start = RoundRecord(0, test_loss=loss, accuracy=accuracy, seconds=seconds)
    records = [with_totals(start, start)]
    on_round(records[0])
    empty_rounds = 0
    for server_round in range(1, plan.num_rounds + 1):
        started = time.monotonic()
        rate = plan.rate(server_round)
        config = ConfigRecord({**client_config, "learning-rate": rate})
        cohort = _cohort(grid, nodes, plan, server_round, "train")
        trained = _Exchange(
            cohort, strategy.configure_train(server_round, arrays, config, cohort), plan
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
            cohort = _cohort(grid, nodes, plan, server_round, "evaluate")
            evaluated = _Exchange(
                cohort, strategy.configure_evaluate(server_round, arrays, config, cohort), plan
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
        record = with_totals(record, records[-1])
        records.append(record)
        on_round(record)
        if empty_rounds == MAX_EMPTY_ROUNDS:
            reasons = "; ".join(sorted(set(rejected.values()))[:3]) or "none was asked"
            raise RunError(f"no usable reply in {empty_rounds} rounds in a row: {reasons}")
        if plan.reached(accuracy_now):
            break
    return conclude(arrays, records, plan)


def conclude(arrays: ArrayRecord, records: list[RoundRecord], plan: Plan) -> Outcome:
    """Return the outcome of a training that ended with these arrays."""
    target = plan.target_accuracy
    reached = rounds_to_target(accuracy_curve(records), target) if target else None
    return Outcome(arrays, records, reached)


def _cohort(
    grid: Grid, nodes: Sequence[int], plan: Plan, server_round: int, purpose: str
) -> CohortGrid:
    """Return the grid with the nodes of the clients that take part, in the clients' order."""
    fraction = plan.fraction_train if purpose == "train" else plan.fraction_evaluate
    clients = sample(plan.seed, server_round, purpose, fraction, len(nodes))
    return CohortGrid(grid, [nodes[client] for client in clients])


class _Exchange:
    """One half of a round: messages out, and the replies to them in the clients' order.

    Replies arrive in any order, and sums of floats depend on it: in the clients' order the same
    replies give the same model. Each is passed on as soon as those before it are there, so that
    decoding and adding it up go on while others still train.

    Attributes:
        sent: The messages.
        bytes_up: The bytes of the replies passed on so far.
    """

    def __init__(self, cohort: CohortGrid, messages: Iterable[Message], plan: Plan) -> None:
        self.sent = list(messages)
        self.bytes_up = 0
        self._cohort, self._timeout = cohort, plan.round_timeout
        place = {node: number for number, node in enumerate(cohort.get_node_ids())}
        asked = [message.metadata.dst_node_id for message in self.sent]
        self._missing = sorted(asked, key=lambda node: place.get(node, len(place)))

    def replies(self) -> Iterator[Message]:
        """Send the messages; yield the replies that come in time."""
        early: dict[int, list[Message]] = {node: [] for node in self._missing}
        for reply in stream(self._cohort, self.sent, self._timeout):
            early.setdefault(reply.metadata.src_node_id, []).append(reply)
            while self._missing and early[self._missing[0]]:
                yield self._pass(early[self._missing.pop(0)])
        # The deadline is over: those that did not come are passed by.
        for node in list(self._missing):
            if early[node]:
                self._missing.remove(node)
                yield self._pass(early[node])

    def _pass(self, came: list[Message]) -> Message:
        reply = came.pop(0)
        self.bytes_up += count_bytes(reply)
        return reply

    @property
    def silent(self) -> dict[int, str]:
        """The nodes that did not answer."""
        return dict.fromkeys(self._missing, "no reply in time")


def _scalars(metrics: MetricRecord | None) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in (metrics or {}).items()
        if isinstance(value, int | float)
    }
