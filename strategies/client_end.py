"""The client's end of a strategy, around a ClientApp's handlers."""

from collections.abc import Callable, Mapping

from flwr.app import Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from strategies.client_memory import ClientMemory
from strategies.client_messages import NoUpdateError, read_received, train_from, write_update
from strategies.messages import Received, Update
from strategies.model import Model, Vector

# Trains from a model and returns what that left; further vectors go to the handler by name.
Train = Callable[..., Update]
# What a strategy does on the client: (received, memory, train) -> (update, the memory to keep).
# Without a memory the client's whole state stays as it was, that of the handler included.
ClientEnd = Callable[[Received, ClientMemory, Train], tuple[Update, ClientMemory | None]]


def around_handler(
    end: ClientEnd, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """Handle a message by a strategy's end on the client. The client's state is changed last.

    Raises:
        ValueError: The message cannot be read, or what the strategy's end raises.
    """
    received, memory = read_received(message, context), ClientMemory.read(context.state)
    before = context.state.copy()  # the handler keeps its own there, such as momentum
    reply: Message | None = None

    def train(model: Model, vectors: Mapping[str, Vector] | None = None) -> Update:
        nonlocal reply
        reply, update = train_from(message, context, call_next, received, model, vectors or {})
        return update

    try:
        update, kept = end(received, memory, train)
    except NoUpdateError as error:
        return error.reply
    if kept is None:
        context.state = before
        reply = None
    if reply is None:
        reply = Message(RecordDict(), reply_to=message)
    write_update(reply.content, update)
    if kept is not None:
        kept.write(context.state)
    return reply
