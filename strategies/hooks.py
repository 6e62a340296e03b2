"""What a strategy may say and do beside its five functions: each has a default."""

from typing import ClassVar

from flwr.app import MessageType

from strategies.model import change_norm
from strategies.reply_validation import ReplyError
from strategies.rounds import Round, Terms
from strategies.server_messages import Reply


class Hooks:
    """The optional parts of a strategy.

    Attributes:
        train_type: The type of training messages: "train", or "train.gradient" for a gradient.
        local_work: Human-readable description of the local work, where that is not SGD with the
            config's epochs or steps and its batch size; else empty.
        plain_sgd: Whether the method is defined for SGD without momentum only.
        needs: Keys that the settings of clients must have.
        updates_evaluation: Whether clients that evaluate are sent what `broadcast` says, too; else
            the model.
    """

    train_type: ClassVar[str] = MessageType.TRAIN
    local_work: ClassVar[str] = ""
    plain_sgd: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()
    updates_evaluation: ClassVar[bool] = False

    def begin(self, now: Round) -> None:
        """Called before the messages of a round, or of an evaluation, are made."""

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the L2 norm of a client's update, which ``max-update-norm`` bounds."""
        (vector,) = terms
        return change_norm(vector, now.model.vector)  # type: ignore[arg-type]

    def bits_down(self, now: Round, node: int) -> float:
        """Return what a client is sent by the papers' formulas, in bits: 32 an entry."""
        return 32.0 * now.model.size

    def bits_up(self, now: Round) -> float:
        """Return what one client sends by the papers' formulas, in bits: 32 an entry."""
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
