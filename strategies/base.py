"""`FederatedStrategy`: a method as a strategy of Flower's, and all that its author imports.

In any Flower app it can replace Flower's `FedAvg`; there a subclass may also override the methods
of Flower's `Strategy`, and call ``super()``.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, Self

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from pydantic import Field
from pydantic.dataclasses import dataclass

from .method import Ask, Method
from .registry import check_call
from .rounds.client_memory import ClientMemory, Vectors
from .rounds.client_messages import Train, around_handler
from .rounds.local_arrays import with_local_arrays
from .rounds.messages import Broadcast, Received, Update
from .rounds.model import Model, Vector, change_norm, difference
from .rounds.reply_errors import ReplyError
from .rounds.reply_validation import Reply
from .rounds.start_runner import StartRunner
from .rounds.strategy_runner import StrategyRunner
from .rounds.values import Aggregate, Round, RoundOutcome, RunSettings, Terms

__all__ = [
    "Aggregate", "Ask", "Broadcast", "ClientMemory", "FederatedStrategy", "Method", "Model",
    "Received", "Reply", "ReplyError", "Round", "RoundOutcome", "RunSettings", "StrategyRunner",
    "Terms", "Train", "Update", "Vector", "Vectors", "change_norm", "difference",
]  # fmt: skip

Fraction = Annotated[float, Field(ge=0, le=1)]
Nodes = Annotated[int, Field(ge=0)]


@dataclass(kw_only=True, eq=False)
class FederatedStrategy(Method, Strategy):
    """A method of federated learning (`Method`), and a `flwr.serverapp.strategy.Strategy`.

    The arguments are those of `Method` and of Flower's `FedAvg`. In this project's app the run's
    config replaces the latter: the strategy sees only the round's cohort, and uses all of it.
    """

    fraction_train: Fraction = 1.0
    fraction_evaluate: Fraction = 1.0
    min_train_nodes: Nodes = 2
    min_evaluate_nodes: Nodes = 2
    min_available_nodes: Nodes = 2

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Check the arguments' names before pydantic, whose errors have several lines.

        Raises:
            ValueError: An argument is unknown, or has no name; the line says which may be meant.
        """
        if args or options:  # not in a copy
            check_call(cls, args, options)
        return super().__new__(cls)

    @cached_property
    def sampling(self) -> FedAvg:
        """Flower's own FedAvg, which draws the nodes of a round in other apps."""
        return FedAvg(
            self.fraction_train,
            self.fraction_evaluate,
            self.min_train_nodes,
            self.min_evaluate_nodes,
            self.min_available_nodes,
            self.weighted_by_key,
        )

    @cached_property
    def runner(self) -> StrategyRunner:
        """Runs the rounds in other apps."""
        return StartRunner(self, self.sampling)

    def client_mod(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> Message:
        """Handle a message on the client: the mod of the strategy's ClientApp."""
        trains = message.metadata.message_type.startswith("train")
        call_next = with_local_arrays(message, call_next)
        if not self.has_client_end or not (trains or self.updates_evaluation):
            return call_next(message, context)
        return around_handler(self.client, message, context, call_next)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round, for a share of the nodes drawn at random."""
        if server_round <= self.runner.last_round:  # another training with this strategy
            self.__post_init__()
            self.runner = StartRunner(self, self.sampling)
        return self.runner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model and the clients' metrics; None without a usable reply."""
        outcome = self.runner.finish_round(replies)
        return outcome.model, outcome.metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of an evaluation, for a share of the nodes drawn at random."""
        return self.runner.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the clients' metrics; None without a usable reply."""
        return self.runner.finish_evaluation(replies).metrics

    def start(self, *args: Any, **options: Any) -> Result:
        """Run the training as Flower's `Strategy.start`, whose arguments it has; log the bytes.

        Raises:
            StrategyError: Every reply was rejected in several rounds in a row, or in all rounds.
        """
        result = super().start(*args, **options)
        assert isinstance(self.runner, StartRunner)
        self.runner.end_training(trained=bool(result.arrays))
        return result

    def summary(self) -> None:
        """Log how nodes are drawn."""
        self.sampling.summary()
