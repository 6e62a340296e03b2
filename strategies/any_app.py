"""`compression_mod`: the clients' end of all compressed strategies, for any ClientApp."""

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from .compressed_client import CompressedClient
from .rounds.client_messages import around_handler, refuse_open
from .rounds.flower_arrays import find_record
from .rounds.local_arrays import with_local_arrays
from .rounds.messages import OWN, SECURE

# The clients of a process.
_clients = CompressedClient()


def compression_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Handle a message of any compressed strategy.

    The server's first message names the codec, and the client keeps it. Messages without the
    strategies' own record pass through.

        app = ClientApp(mods=[compression_mod])
    """
    refuse_open(message, context)
    call_next = with_local_arrays(message, call_next)
    if OWN not in message.content:
        return call_next(message, context)
    if SECURE not in (find_record(message.content, OWN, ConfigRecord) or {}):
        return around_handler(_clients.answer, message, context, call_next)
    from .secure.client import SecureClient

    return around_handler(SecureClient(_clients).answer, message, context, call_next)
