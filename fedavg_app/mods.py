"""What runs around a client's handler: the strategy's own mod, and inside it those of the user.

The strategy's mod is the protocol's client end: outside of it travels whatever the protocol makes
of a message, inside there are always the plain records "arrays", "config" and "metrics". That is
where the mods of the key "client-mods" belong, Flower's own for clipping, noise and sizes included.
"""

import inspect
from collections.abc import Sequence
from functools import wraps
from importlib import import_module

from flwr.app import Context, Error, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

import strategies
from fedavg_app.errors import ConfigError


def with_mods(innermost: ClientAppCallable) -> ClientAppCallable:
    """Put the mods of the run, those of "client-mods" inside the strategy's, around a handler.

    A mod refuses a message by replying with an error. The strategy's mod could do nothing with
    such a reply and never sees it: the error goes past it, straight to the server.
    """

    @wraps(innermost)
    def handler(message: Message, context: Context) -> Message:
        own = strategies.client_mod(str(context.run_config["strategy"]))
        chosen = load_mods(str(context.run_config["client-mods"]))
        mods = [*([own] if own else []), _raise_refusals, *chosen]
        try:
            return chain(mods, innermost)(message, context)
        except _Refused as refused:
            # Addressed anew: where a handler's reply is what they refuse, Flower's mods answer
            # that reply, and their answer would never reach the server, which waits for it.
            return Message(refused.error, reply_to=message)

    return handler


def load_mods(names: str) -> list[Mod]:
    """Return the mods that the value of "client-mods" names, the outermost first.

    Args:
        names: Any number of "package.module:attribute", separated by commas.

    Raises:
        ConfigError: One of them cannot be imported or is no mod.
    """
    return [_load(name) for part in names.split(",") if (name := part.strip())]


def chain(mods: Sequence[Mod], innermost: ClientAppCallable) -> ClientAppCallable:
    """Return the handler with the mods around it, the first outermost."""
    if not mods:
        return innermost
    first, inner = mods[0], chain(mods[1:], innermost)
    return lambda message, context: first(message, context, inner)


class _Refused(Exception):  # noqa: N818 - it carries an answer past the strategy's mod
    def __init__(self, error: Error) -> None:
        super().__init__(error.reason)
        self.error = error


def _raise_refusals(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    reply = call_next(message, context)
    if reply.has_error():
        raise _Refused(reply.error)
    return reply


def _load(name: str) -> Mod:
    module, _, attribute = name.partition(":")
    try:
        mod: Mod = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        fix = f"cannot import it as package.module:attribute ({error})"
        raise ConfigError("client-mods", name, fix) from error
    if inspect.isclass(mod):
        raise ConfigError("client-mods", name, "a class; name an instance of it, made in a module")
    if not callable(mod):
        raise ConfigError("client-mods", name, "not a function (message, context, call_next)")
    return mod
