"""One message on its way through the ClientApp, in one step or in several."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import Context, Message, RecordDict

from fedavg_app.flower_internals import error_reply
from fedavg_app.ray_engine.deadline import (
    LATE,
    NOT_BEGUN,
    DeadlineError,
    check_deadline,
    interrupted_at,
)

# Flower's ClientApp, or its like.
Handler = Callable[[Message, Context], Message]


@dataclass(frozen=True)
class HandledMessage:
    """The answer to a message.

    Attributes:
        reply: The client's reply.
        has_state: Whether the client has a state now.
        seconds: How long it took.
    """

    reply: Message
    has_state: bool
    seconds: float


class ClientCall:
    """A message for a client, and what handling it has given so far.

    Args:
        message: The message.
        context: The client's context; handling it changes the context's state.
        deadline: When the client must be done, on the monotonic clock; infinity for never.

    Attributes:
        reply: The client's reply, an error reply where handling it raised; None before that.
        state: The client's state after handling it.
        seconds: How long it took.
    """

    def __init__(self, message: Message, context: Context, deadline: float) -> None:
        self.message, self.context, self.deadline = message, context, deadline
        self.reply: Message | None = None
        self.state: RecordDict = context.state
        self.seconds = 0.0
        self._begun = False
        context.state = context.state.copy()

    def handle(self, handler: Handler) -> None:
        """Let the handler handle the message, in one step."""

        def step() -> None:
            self.reply = handler(self.message, self.context)

        self.attempt(step)

    def attempt(self, step: Callable[[], None]) -> None:
        """Do a step of the handling; if it raises, or is not done in time, the call has failed.

        A call that fails is over: its `reply` is the error.
        """
        started = time.monotonic()
        try:
            check_deadline(self.deadline, LATE if self._begun else NOT_BEGUN)
            self._begun = True
            with interrupted_at(self.deadline):
                step()
            if self.reply is not None:
                self.state = self.context.state
        except DeadlineError as error:
            # It may have been changing its state, which is therefore what it was before.
            self.reply = error_reply(self.message, str(error))
        except Exception:
            self.state = self.context.state  # a SuperNode keeps it, too
            self.reply = error_reply(self.message, traceback.format_exc())
        self.seconds += time.monotonic() - started
