"""The mods around a client's handler: the strategy's own outside, those of "client-mods" inside.

Innermost are the arrays that stay on the client (`keep_local_arrays`): no other mod sees their
values.

Outermost, a content that came over the network as one object is unpacked, and the reply is packed.
Outside the strategy's mod a message has the form of the strategy's protocol; inside it always has
the plain records "arrays", "config" and "metrics". That is where the mods of the key "client-mods"
belong, Flower's own for clipping, noise and sizes included.
"""

import inspect
import pkgutil
import traceback
from collections.abc import Sequence
from functools import lru_cache, wraps

from flwr.app import ConfigRecord, Context, Error, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable, Mod

import strategies
from fedavg_app.client_settings import run_config
from fedavg_app.errors import USER_ERRORS
from fedavg_app.packed_content import pack, unpack
from fedavg_app.plugins import load_component
from strategies.rounds.client_messages import refuse_open
from strategies.rounds.flower_arrays import get_record
from strategies.rounds.local_arrays import told_of, with_local_arrays
from strategies.rounds.messages import ARRAYS, CONFIG, PLACES, VALUES
from strategies.rounds.reply_errors import choose_place, printable, shorten
from tasks.arguments import Arguments

# Characters of an error's text that go to the server, which keeps fewer. A SuperLink refuses long
# ones, and half a surrogate pair, as in the name of a file, cannot be sent.
MAX_ERROR = 2000
# A place after all arrays of a model.
LAST = 2**31
# The record of the reply to a test by a client that has none of its own yet.
UNTRAINED = "untrained"


class ClientFailedError(RuntimeError):
    """A client's work failed: the cause in one line, with the file and the line that raised it.

    A SuperNode sends the server only the text of an error.
    """

    def __init__(self, error: Exception) -> None:
        text = shorten(printable(" ".join(str(error).split())), MAX_ERROR)
        frames = traceback.extract_tb(error.__traceback__)
        file, line = choose_place([(frame.filename, str(frame.lineno)) for frame in frames])
        super().__init__(f"{type(error).__name__}: {text} ({file}, line {line})")


def with_mods(handler: ClientAppCallable) -> ClientAppCallable:
    """Put the run's mods around a handler.

    A mod of "client-mods" rejects a message by replying with an error. That reply goes straight to
    the server: the strategy's mod expects the handler's records. What any of them raises becomes a
    `ClientFailedError`, unless it is an error of the user's settings.
    """

    @wraps(handler)
    def with_run_mods(message: Message, context: Context) -> Message:
        try:
            was_packed = unpack(message)
            refuse_open(message, context)
            config = run_config(context.run_config)
            outer = _strategy_mod(config.strategy, config.strategy_args)
            mods = [
                *([outer] if outer else []),
                _raise_errors,
                *load_mods(config.client_mods),
                keep_local_arrays,
            ]
            reply = chain(mods, handler)(message, context)
        except _ErrorReply as rejection:
            # A new reply to the server's message: Flower's mods reply to the handler's reply where
            # that is what they reject, and the server would never get it.
            error = rejection.error
            text = (error.reason or "")[-MAX_ERROR:].encode(errors="replace").decode()
            return Message(Error(error.code, text), reply_to=message)
        except USER_ERRORS:  # a line that says enough
            raise
        except Exception as error:
            raise ClientFailedError(error) from error
        if was_packed and reply.has_content():
            reply.content = pack(reply.content)
        return reply

    return with_run_mods


def load_mods(names: str) -> list[Mod]:
    """Return the mods that the value of "client-mods" names, the outermost first.

    Args:
        names: Any number of "package.module:attribute", separated by commas.

    Raises:
        ConfigError: A name cannot be imported or is not a mod.
    """
    named = [name for part in names.split(",") if (name := part.strip())]
    return [load_component("client-mods", name, _load_mod) for name in named]


def chain(mods: Sequence[Mod], handler: ClientAppCallable) -> ClientAppCallable:
    """Return the handler with the mods around it, the first outermost."""
    if not mods:
        return handler
    first, inner = mods[0], chain(mods[1:], handler)

    def call(message: Message, context: Context) -> Message:
        reply: object = first(message, context, inner)
        if not isinstance(reply, Message):
            name = getattr(first, "__name__", type(first).__name__)
            raise TypeError(f"the mod {name} returned {reply!r}, not the reply")
        return reply

    return call


class _ErrorReply(Exception):  # noqa: N818 - it carries a reply past the strategy's mod
    def __init__(self, error: Error) -> None:
        super().__init__(error.reason)
        self.error = error


def _raise_errors(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    reply = call_next(message, context)
    if reply.has_error():
        raise _ErrorReply(reply.error)
    return reply


@lru_cache(maxsize=2)
def _strategy_mod(name: str, arguments: Arguments) -> Mod | None:
    return strategies.client_mod(name, arguments.values)


def keep_local_arrays(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Handle a message with the client's own values of the arrays that "local-arrays" names.

    These stay on the client, such as FedBN's batch normalisation (X. Li, M. Jiang, X. Zhang,
    M. Kamp, Q. Dou: FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.
    ICLR 2021, arXiv 2102.07623): it trains and tests the global model with them, at first those of
    the task's initial model. They do not travel; the server's model keeps the initial values. New
    values are kept once training has succeeded; if it gave NaN or infinity that was not there,
    the old values are kept.
    """
    if not run_config(context.run_config).local_arrays:
        return call_next(message, context)
    # Not at the top: it imports torch.
    from fedavg_app.client.client_process import client_process

    config = get_record(message.content, CONFIG, ConfigRecord)
    initial = client_process(context.node_config, context.run_config, config).local_arrays
    # As if the server had sent them: handlers take arrays by name, so these may be the last.
    message.content[PLACES] = told_of(dict.fromkeys(initial, LAST), ARRAYS)
    message.content[VALUES] = initial
    untrained = VALUES not in context.state
    reply = with_local_arrays(message, call_next)(message, context)
    if untrained and message.metadata.message_type == MessageType.EVALUATE:
        reply.content[UNTRAINED] = ConfigRecord({"local-arrays": False})
    return reply


def _load_mod(name: str) -> Mod:
    mod: Mod = pkgutil.resolve_name(name)
    if inspect.isclass(mod):
        raise ValueError("a class; name an instance of it, made in a module")
    if not callable(mod):
        raise ValueError("not a function (message, context, call_next)")
    return mod
