"""The training loop: one round after the other, whatever the strategy."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import partial
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid

from fedavg_app.config import RunConfig
from fedavg_app.errors import DivergedError, NoRepliesError
from fedavg_app.results.history import RoundMetrics, test_scores, virtual_times
from fedavg_app.server.client_evaluations import ClientScores, ClientTests
from fedavg_app.server.client_sampling import Facts
from fedavg_app.server.global_evaluation import Evaluate
from fedavg_app.server.nodes import Nodes
from fedavg_app.server.round_messenger import RoundMessenger
from fedavg_app.training_plan import TrainingPlan
from fedavg_app.virtual_clock import VirtualClock
from strategies.rounds.reply_errors import DivergedReplyError, ReplyError
from strategies.rounds.runner import MAX_EMPTY_ROUNDS, Runner
from strategies.rounds.values import RoundOutcome
from tasks.metrics import Metric

logger = logging.getLogger("fedavg_app.training_loop")

# The metric of clients that has a field of its own in the history.
TRAIN_LOSS = "train-loss"


@dataclass
class TrainingLoop:
    """Runs federated training until its plan says that it ends.

    Attributes:
        model: The initial model, or that of the last completed round.
        nodes: The nodes; those that the run begins with are connected.
        client_config: Goes to the clients, with the round's "learning-rate" added.
        metrics: The task's, by which clients test the model.
        on_round_end: Called with the metrics and the model of every round, round 0 (the initial
            model) first; appends the metrics to the history.
        history: The rounds of this run so far; it continues after them.
        clock: The virtual clock of a simulation with links.
        facts: What the server knows of the clients, for a strategy that chooses among them.
        validate: Evaluates a model on validation examples, if there are any.
    """

    grid: Grid
    strategy: Runner
    model: ArrayRecord
    nodes: Nodes
    config: RunConfig
    plan: TrainingPlan
    client_config: ConfigRecord
    evaluate: Evaluate
    metrics: Mapping[str, Metric]
    on_round_end: Callable[[RoundMetrics, ArrayRecord], None]
    history: InitVar[Sequence[RoundMetrics]]
    clock: VirtualClock | None = None
    facts: Facts = Facts()  # noqa: RUF009 - it is frozen
    validate: Evaluate | None = None

    def __post_init__(self, history: Sequence[RoundMetrics]) -> None:
        in_flight = self.strategy.in_flight if self.strategy.takes_late else None
        facts = self.facts if self.strategy.selects_clients else None
        self._messenger = RoundMessenger(
            self.grid, self.nodes, self.config, self.clock, in_flight, facts
        )
        self._history = history
        self._train_errors: Mapping[int, ReplyError] = {}  # of the last round, by node

    def run(self) -> None:
        """Run the rounds.

        Raises:
            DivergedError: `MAX_EMPTY_ROUNDS` rounds in a row, or the last ones of a training that
                does not reach its target, had no valid reply, and in the last one the training of
                all clients that replied had diverged.
            NoRepliesError: Those rounds had no valid reply for other reasons; or the last
                `MAX_EMPTY_ROUNDS`, all of a shorter training, had mostly rejected replies, where
                clients that did not answer, such as devices that are off, do not count.
            RunError: No node is connected.
        """
        if not self._history:
            self._end_round(self._evaluate_initial_model())
        first, empty_rounds, poor_rounds = self._history[-1].round, 0, 0
        while not self.plan.ends_after(self._history):
            metrics, outcome, most_failed = self._run_round(self._history[-1].round + 1)
            if not self._affords(metrics):
                break
            self._end_round(metrics)
            if not outcome.num_resyncing:
                poor_rounds = poor_rounds + 1 if most_failed else 0
            if outcome.model is not None:
                empty_rounds = 0
            elif not outcome.num_resyncing:
                empty_rounds += 1
            if empty_rounds == MAX_EMPTY_ROUNDS:
                raise self._no_replies(empty_rounds)
        if empty_rounds and not self.plan.is_reached(self._history[-1]):
            raise self._no_replies(empty_rounds)
        if 0 < min(MAX_EMPTY_ROUNDS, self._history[-1].round - first) <= poor_rounds:
            errors = map(str, self._train_errors.values())
            raise self._no_replies(poor_rounds, "most replies were rejected", errors)

    def _evaluate_initial_model(self) -> RoundMetrics:
        started = time.monotonic()
        return RoundMetrics(0, **self._scores(), seconds=time.monotonic() - started)

    def _scores(self) -> dict[str, Any]:
        """Return the results of a test of the model as fields of `RoundMetrics`."""
        validation = None if self.validate is None else self.validate(self.model)
        return test_scores(self.evaluate(self.model), validation)

    def _run_round(self, server_round: int) -> tuple[RoundMetrics, RoundOutcome, bool]:
        """Run one round; return its metrics, outcome, and whether most that answered failed."""
        started = time.monotonic()
        self.nodes.wait_for_any(self.config.node_timeout)
        rate = self.plan.rate(server_round)
        config = ConfigRecord({**self.client_config, "learning-rate": rate})
        begin = partial(self.strategy.round, server_round, self.model, config)
        elapsed = 0.0 if self.clock is None else virtual_times(self._history)[-1]
        carry = self._messenger.carry
        outcome, traffic = carry(begin, server_round, "train", elapsed=elapsed)
        self.model, self._train_errors = outcome.model or self.model, outcome.rejected
        refused = self.nodes.take_refusals()

        due = server_round % self.config.evaluate_every == 0 or server_round == self.plan.num_rounds
        tested, not_tested = self._evaluate_on_clients(server_round, config, due)
        scores = self._scores() if due else {}
        train_metrics = _scalars(outcome.metrics)
        round_metrics = RoundMetrics(
            round=server_round,
            participants=traffic.num_sent,
            rejected=_joined(refused | traffic.unanswered | reasons(outcome), not_tested),
            # A grid that keeps the clients' states in its own processes may lose some.
            lost_states=getattr(self.grid, "take_lost_states", list)(),
            learning_rate=rate,
            train_loss=train_metrics.pop(TRAIN_LOSS, None),
            train_metrics=train_metrics,
            **scores,
            client_metrics=tested.metrics,
            client_values={name: self._by_client(values) for name, values in tested.values.items()},
            partial=_partial(outcome, tested),
            bytes_down=traffic.bytes_down,
            bytes_up=traffic.bytes_up,
            largest_down=traffic.largest_down,
            largest_up=traffic.largest_up,
            exchanges=traffic.exchanges,
            theory_bits_down=outcome.formula_bits_down,
            theory_bits_up=outcome.formula_bits_up,
            virtual_seconds=traffic.virtual_seconds,
            privacy=dict(outcome.privacy),
            seconds=time.monotonic() - started,
        )
        most_failed = 2 * len(outcome.rejected) > traffic.num_messages - len(traffic.unanswered)
        return round_metrics, outcome, most_failed

    def _evaluate_on_clients(
        self, server_round: int, config: ConfigRecord, due: bool
    ) -> tuple[ClientScores, dict[int, str]]:
        """Return what the clients' tests amount to, and the reasons for replies without."""
        if not due or self.config.fraction_evaluate == 0:
            return ClientScores(), {}
        tests = ClientTests(self.metrics)
        begin = partial(self.strategy.evaluation, server_round, self.model, config)
        outcome, traffic = self._messenger.carry(begin, server_round, "evaluate", tests.take)
        scores = tests.scores(outcome, _scalars(outcome.metrics))
        return scores, traffic.unanswered | reasons(outcome)

    def _by_client(self, values: Mapping[int, float]) -> dict[int, float]:
        """Return values by node as those of their clients."""
        clients = self.nodes.clients_of(values)
        return {clients[node]: value for node, value in values.items()}

    def _end_round(self, metrics: RoundMetrics) -> None:
        before = self._history[-1] if self._history else None
        self.on_round_end(metrics.with_totals(before), self.model)

    def _affords(self, metrics: RoundMetrics) -> bool:
        """Return whether the round is within the budget; log it if it is not."""
        after = [*self._history, metrics.with_totals(self._history[-1])]
        if self.plan.affords(after):
            return True
        text = "round %d is not counted: with it the run would have spent %.4g of %s"
        logger.info(text, metrics.round, self.plan.spent(after), self.plan.budget)
        return False

    def _no_replies(
        self, rounds: int, what: str = "no usable reply", why: Iterable[str] | None = None
    ) -> NoRepliesError | DivergedError:
        """Return the error of a run whose last rounds had no valid reply, or few.

        Args:
            rounds: How many these are.
            what: What they had.
            why: Reasons of the last one; by default all that the history has.
        """
        last = self._history[-1]
        why = last.rejected.values() if why is None else why
        reasons = "; ".join(sorted(set(why))[:3]) or (
            "the strategy made no model of the replies"
            if last.participants
            else "no client was asked"
        )
        where = f"{rounds} rounds in a row" if rounds > 1 else f"round {last.round}"
        text = f"{what} in {where}: {reasons}"
        errors = self._train_errors.values()
        if errors and all(isinstance(error, DivergedReplyError) for error in errors):
            return DivergedError(f"{text}; give a smaller learning-rate")
        return NoRepliesError(f"{text}; run.log has all reasons and tracebacks")


def reasons(outcome: RoundOutcome) -> dict[int, str]:
    """Return why replies were rejected, as text by node id."""
    return {node: str(error) for node, error in outcome.rejected.items()}


def _joined(rejected: Mapping[int, str], not_tested: Mapping[int, str]) -> dict[int, str]:
    """Return the reasons for both, by node."""
    both = rejected.keys() & not_tested.keys()
    joined = {node: f"{rejected[node]}; evaluation: {not_tested[node]}" for node in both}
    return {**rejected, **not_tested, **joined}


def _scalars(metrics: MetricRecord | None) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in (metrics or {}).items()
        if isinstance(value, int | float)
    }


def _partial(trained: RoundOutcome, evaluated: ClientScores) -> dict[str, str]:
    """Return of how many clients means are, by the names that `RoundMetrics` has for them."""
    training = {
        "train_loss" if name == TRAIN_LOSS else f"train_metrics.{name}": number
        for name, number in trained.partial.items()
    }
    of_clients = {f"client_metrics.{name}": number for name, number in evaluated.partial.items()}
    return training | of_clients
