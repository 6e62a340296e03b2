"""`FederatedStrategy`: a method, in four functions and its attributes.

1. `broadcast`: what is sent to a client.
2. `client`: what the client does around its training.
3. `read`: what is averaged from a client's reply.
4. `step`: the next global model, from the clients' mean.
5. The strategy's attributes: what is kept between rounds; only `step` changes them.

All other functions have a default.

A strategy never handles messages, records, buffers, or replies that must not be used: its `Runner`
does. In any Flower app it can replace Flower's `FedAvg`; there a subclass may also override the
methods of Flower's `Strategy`, and call ``super()``.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from .client_memory import ClientMemory
from .client_messages import Train, around_handler
from .local_arrays import with_local_arrays
from .messages import NUM_EXAMPLES, Broadcast, Received, Update
from .model import TrainedArrays, Vector, change_norm
from .registry import Weights, check_call
from .reply_errors import ReplyError
from .reply_validation import Reply
from .rounds import OTHER_APP, Aggregate, Round, Terms
from .strategy_runner import StrategyRunner

Fraction = Annotated[float, Field(ge=0, le=1)]
Nodes = Annotated[int, Field(ge=0)]
MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]
# Functions of an earlier contract, which a strategy may not define.
NOT_OURS = ("validate", "accumulate", "finalize", "check_model", "round_bits", "reply_bits")


@dataclass(kw_only=True, eq=False, config=ConfigDict(extra="forbid"))
class FederatedStrategy(Strategy):
    """A method of federated learning, and a `flwr.serverapp.strategy.Strategy`.

    The arguments are those of Flower's `FedAvg`. In this project's app the run's config replaces
    them: the strategy sees only the round's cohort, and uses all of it.

    Args:
        weights: The clients' weights: "samples" (n_k) or "uniform".
        local_arrays: Names of arrays, or patterns such as "head.*", that stay on each client, which
            needs ``mods=[compression_mod]``. The server's model keeps their initial values. In this
            project's app the key "local-arrays" names them.

    Attributes:
        train_type: The type of training messages: "train", or "train.gradient" for a gradient.
        local_work: Human-readable description of the local work, unless that is SGD with the
            config's epochs or steps and its batch size; else empty.
        plain_sgd: Whether the method is defined for SGD without momentum only.
        needs: Keys that the settings of clients must have.
        paper_weights: The default of ``weights`` in this project's app.
        updates_evaluation: Whether clients that evaluate are sent what `broadcast` returns; else
            the model.
    """

    train_type: ClassVar[str] = MessageType.TRAIN
    local_work: ClassVar[str] = ""
    plain_sgd: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    paper_weights: ClassVar[Weights] = "samples"
    updates_evaluation: ClassVar[bool] = False

    weights: Weights = "samples"
    local_arrays: tuple[str, ...] = ()
    fraction_train: Fraction = 1.0
    fraction_evaluate: Fraction = 1.0
    min_train_nodes: Nodes = 2
    min_evaluate_nodes: Nodes = 2
    min_available_nodes: Nodes = 2
    weighted_by_key: str = NUM_EXAMPLES
    arrayrecord_key: str = "arrays"
    configrecord_key: str = "config"
    train_metrics_aggr_fn: MetricsFunction | None = None
    evaluate_metrics_aggr_fn: MetricsFunction | None = None

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Check the arguments' names before pydantic, whose errors have several lines.

        Raises:
            ValueError: An argument is unknown, or has no name; the line says which may be meant.
        """
        if args or options:  # not in a copy
            check_call(cls, args, options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Initialise what is kept between rounds; called again before a second training."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a strategy of an earlier contract, which would train without its own step."""
        super().__init_subclass__(**options)
        if found := [name for name in NOT_OURS if name in vars(cls)]:
            raise TypeError(
                f"{cls.__name__} defines {', '.join(found)}: strategies have broadcast, client, "
                "read and step instead; docs/writing-a-strategy.md says how"
            )

    def broadcast(self, now: Round, node: int) -> Broadcast:
        """Return what is sent to a client, by default the model."""
        return Broadcast()

    def client(
        self, received: Received, memory: ClientMemory, train: Train
    ) -> tuple[Update, ClientMemory | None]:
        """Train on the client; return the update to send, and the memory to keep.

        The client builds its own strategy object with the same arguments; it knows nothing else of
        the server's. If the memory is None, the client's state stays unchanged.

        Args:
            received: What the server sent.
            memory: What the client kept.
            train: ``train(model, vectors)`` runs the ClientApp's handler and returns an `Update`
                with the trained model.
        """
        raise NotImplementedError

    @abstractmethod
    def read(self, now: Round, reply: Reply) -> Terms:
        """Return what is averaged over the clients: vectors, or decoded updates.

        Must change nothing. Every part of the reply is checked on access.

        Raises:
            ReplyError: The reply must not be used.
        """

    @abstractmethod
    def step(self, now: Round, aggregate: Aggregate) -> Vector | None:
        """Return the next model's vector; None leaves the model unchanged.

        Raises:
            ReplyError: The replies give no model; all are rejected for that reason.
        """

    # What a strategy may say and do beside its five functions.

    def begin(self, now: Round) -> None:
        """Called before the messages of a round, or of an evaluation, are made."""

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the L2 norm of a client's update, which ``max-update-norm`` bounds."""
        (term,) = terms
        vector = reply.vector if isinstance(term, TrainedArrays) else term
        return change_norm(vector, now.model.vector)  # type: ignore[arg-type]

    def bits_down(self, now: Round, node: int) -> float:
        """Return the bits sent to a client by the papers' formulas: 32 an entry."""
        return 32.0 * now.model.size

    def bits_up(self, now: Round, node: int) -> float:
        """Return the bits that a client sends by the papers' formulas: 32 an entry."""
        return 32.0 * now.model.size

    def on_rejected(self, now: Round, node: int, error: ReplyError) -> None:
        """Called when a training reply was rejected; by default it does nothing."""

    def read_evaluation(self, now: Round, reply: Reply) -> None:
        """Read the payload of a reply to an evaluation; by default it does nothing.

        Raises:
            ReplyError: The reply must not be used.
        """

    def forget_clients(self) -> None:
        """Called when all clients have lost their memories; by default it does nothing."""

    # What Flower's `Strategy.start`, and its wrappers, call.

    @cached_property
    def runner(self) -> StrategyRunner:
        """Runs the rounds in other apps."""
        return StrategyRunner(self, OTHER_APP)

    @property
    def takes_late(self) -> bool:
        """Whether late replies count in a later round."""
        return False

    @property
    def has_client_end(self) -> bool:
        """Whether the strategy does something on the client, around the training."""
        return type(self).client is not FederatedStrategy.client

    @classmethod
    def sends_models(cls) -> bool:
        """Whether clients send models, as wrappers of Flower's expect them."""
        is_plain = cls.client is FederatedStrategy.client
        return is_plain and cls.train_type == MessageType.TRAIN

    @cached_property
    def sampling(self) -> FedAvg:
        """Flower's own FedAvg, which draws the nodes of a round."""
        return FedAvg(
            self.fraction_train,
            self.fraction_evaluate,
            self.min_train_nodes,
            self.min_evaluate_nodes,
            self.min_available_nodes,
            self.weighted_by_key,
        )

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
        return self.runner.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the next model and the clients' metrics; None without a usable reply."""
        outcome = self.runner.finish_round(server_round, replies)
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
        return self.runner.finish_evaluation(server_round, replies).metrics

    def start(self, *args: Any, **options: Any) -> Result:
        """Run the training as Flower's `Strategy.start`, whose arguments it has; log the bytes.

        Raises:
            StrategyError: Every reply was rejected in several rounds in a row, or in all rounds.
        """
        result = super().start(*args, **options)
        self.runner.end_training(trained=bool(result.arrays))
        return result

    def summary(self) -> None:
        """Log how nodes are drawn."""
        self.sampling.summary()
