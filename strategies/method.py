"""`Method`: a method of federated learning, in four functions and its attributes.

1. `broadcast`: what is sent to a client.
2. `client`: what the client does around its training.
3. `read`: what is averaged from a client's reply.
4. `step`: the next global model, from the clients' mean.
5. The attributes: what is kept between rounds; only `step` changes them.

All other functions have a default. A method never handles messages, records, buffers, or replies
that must not be used: its runner does. `strategies.base.FederatedStrategy` makes it a strategy of
Flower's.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import ClassVar

from flwr.app import MessageType, MetricRecord, RecordDict
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from .registry import Weights
from .rounds.client_memory import ClientMemory
from .rounds.client_messages import Train
from .rounds.messages import ARRAYS, CONFIG, NUM_EXAMPLES, Broadcast, Received, Update
from .rounds.model import Model, Vector, change_norm
from .rounds.reply_errors import ReplyError
from .rounds.reply_validation import Reply
from .rounds.values import Aggregate, Round, RunSettings, Terms
from .selection import UNIFORM, Candidate

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]


@dataclasses.dataclass(frozen=True)
class Ask:
    """What a method asks of clients in one exchange.

    Attributes:
        nodes: The clients' nodes.
        message_type: The type of the messages, which selects the clients' handler.
        broadcast: Returns what is sent to a node.
        read: Returns what is averaged from a reply.
        is_main: Whether the clients train or test the model; else they prepare or complete that.
        has_metrics: Whether replies have metrics; else every client counts once.
    """

    nodes: Sequence[int]
    message_type: str
    broadcast: Callable[[Round, int], Broadcast]
    read: Callable[[Round, Reply], Terms]
    is_main: bool = True
    has_metrics: bool = True


@dataclass(kw_only=True, eq=False, config=ConfigDict(extra="forbid"))
class Method:
    """The contract of a strategy.

    Args:
        weights: The clients' weights: "samples" (n_k) or "uniform".
        local_arrays: Names of arrays, or patterns such as "head.*", that stay on each client, which
            needs ``mods=[compression_mod]``. The server's model keeps their initial values. In this
            project's app the key "local-arrays" names them.
        weighted_by_key, arrayrecord_key, configrecord_key: As in Flower's `FedAvg`.
        train_metrics_aggr_fn, evaluate_metrics_aggr_fn: Likewise.
        selection: Which clients take part in a round: a name and its arguments, as in
            "power-of-choice candidates = 20" (`strategies.selection`); "uniform" leaves that to the
            app. In this project's app it is the key "selection".

    Attributes:
        train_type: The type of training messages: "train", or "train.gradient" for a gradient.
        local_work: Human-readable description of the local work, unless that is SGD with the
            config's epochs or steps and its batch size; else empty.
        plain_sgd: Whether the method is defined for SGD without momentum only.
        needs: Keys that the settings of clients must have.
        paper_weights: The default of ``weights`` in this project's app.
        updates_evaluation: Whether clients that evaluate are sent what `broadcast` returns; else
            the model.
        hides_clients: Whether the server must not see what single clients report, so that clients
            do not evaluate.
    """

    train_type: ClassVar[str] = MessageType.TRAIN
    local_work: ClassVar[str] = ""
    plain_sgd: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    paper_weights: ClassVar[Weights] = "samples"
    updates_evaluation: ClassVar[bool] = False
    hides_clients: ClassVar[bool] = False

    weights: Weights = "samples"
    selection: str = UNIFORM
    local_arrays: tuple[str, ...] = ()
    weighted_by_key: str = NUM_EXAMPLES
    arrayrecord_key: str = ARRAYS
    configrecord_key: str = CONFIG
    train_metrics_aggr_fn: MetricsFunction | None = None
    evaluate_metrics_aggr_fn: MetricsFunction | None = None

    def __post_init__(self) -> None:
        """Initialise what is kept between rounds; called again before a second training."""

    def exchanges(
        self, now: Round, nodes: Sequence[int]
    ) -> Generator[Ask, Aggregate, Vector | None]:
        """Yield what the round's clients are asked; return the next model's vector.

        By default they are asked once: all train, and `step` gets the aggregate of their replies.
        A method of several exchanges yields further `Ask`, and receives the aggregate of each.
        """
        aggregate = yield Ask(nodes, self.train_type, self.broadcast, self.read)
        return self.step(now, aggregate)

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

    # What a method may say and do beside these functions.

    def select(self, now: Round, available: Sequence[Candidate], count: int) -> Sequence[int]:
        """Return the places in ``available`` of the clients that take part.

        By default the run's ``selection`` chooses. The arguments are those of `Selection.select`.
        """
        raise NotImplementedError

    def check(self, model: Model, settings: RunSettings) -> None:
        """Raise a ValueError if the method cannot train this model with these settings."""

    def begin(self, now: Round) -> None:
        """Called before the messages of a round, or of an evaluation, are made."""

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the L2 norm of a client's update, which ``max-update-norm`` bounds."""
        (term,) = terms
        return change_norm(term, now.model.vector)  # type: ignore[arg-type]

    def bits_down(self, now: Round, node: int) -> float:
        """Return the bits sent to a client by the papers' formulas: 32 an entry."""
        return 32.0 * now.model.size

    def bits_up(self, now: Round, node: int) -> float:
        """Return the bits that a client sends by the papers' formulas: 32 an entry."""
        return 32.0 * now.model.size

    def on_rejected(self, now: Round, node: int, error: ReplyError) -> None:
        """Called when a training reply was rejected; by default it does nothing."""

    def read_evaluation(self, now: Round, reply: Reply) -> Terms:
        """Read the payload of a reply to an evaluation, if it has one; by default ignore it.

        Raises:
            ReplyError: The reply must not be used.
        """
        return ()

    def forget_clients(self) -> None:
        """Called when all clients have lost their memories; by default it does nothing."""

    @property
    def headline(self) -> str:
        """What the method does, in a line: the first one of its docstring."""
        return (type(self).__doc__ or type(self).__name__).split("\n")[0]

    @property
    def takes_late(self) -> bool:
        """Whether late replies count in a later round."""
        return False

    @property
    def has_client_end(self) -> bool:
        """Whether the method does something on the client, around the training."""
        return type(self).client is not Method.client

    @classmethod
    def sends_models(cls) -> bool:
        """Whether clients send models, as wrappers of Flower's expect them."""
        return cls.client is Method.client and cls.train_type == MessageType.TRAIN
