"""Messages that clients still work on when a round ends, where late replies count."""

from dataclasses import dataclass

from flwr.app import Message

from fedavg_app.links.virtual_clock import ClientTime


@dataclass(frozen=True)
class InFlight:
    """A message without a reply yet.

    Attributes:
        node: The node that works on it.
        expiry: When it expires, in seconds of the epoch.
        reply: On the virtual clock, the reply that is on its way.
        seconds: On the virtual clock, when the reply arrives, from the end of the round.
        time: On the virtual clock, how long the client's part takes.
    """

    node: int
    expiry: float
    reply: Message | None = None
    seconds: float = 0.0
    time: ClientTime | None = None


MessagesInFlight = dict[str, InFlight]  # by the message's id
