"""What the messages of a round cost, and those that clients still work on when it ends."""

from dataclasses import dataclass, field

from flwr.app import Message

from fedavg_app.virtual_clock import ClientTime


@dataclass(frozen=True)
class InFlight:
    """A message that its client still works on when a round ends, where late replies count.

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


@dataclass
class Traffic:
    """What the messages of a round cost, and which were not answered.

    Attributes:
        num_messages: How many messages train, or test, the model.
        num_sent: How many of them were sent.
        bytes_down: The bytes of these and of a round's other messages.
        bytes_up: The bytes of the replies.
        largest_down: The bytes of the largest message; of several exchanges, of each one's.
        largest_up: The bytes of the largest reply, likewise.
        exchanges: How many there were.
        unanswered: The reason, by node, for each message that its node did not answer, except
            messages whose reply was no longer needed.
        virtual_seconds: Of the round ("round"), and what the last reply that counted spent on
            "download", "computing" and "upload"; empty without a virtual clock.
    """

    num_messages: int = 0
    num_sent: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    largest_down: int = 0
    largest_up: int = 0
    exchanges: int = 0
    unanswered: dict[int, str] = field(default_factory=dict)
    virtual_seconds: dict[str, float] = field(default_factory=dict)

    def __add__(self, later: "Traffic") -> "Traffic":
        """Return what two exchanges cost together."""
        before = self.virtual_seconds
        return Traffic(
            self.num_messages + later.num_messages,
            self.num_sent + later.num_sent,
            self.bytes_down + later.bytes_down,
            self.bytes_up + later.bytes_up,
            self.largest_down + later.largest_down,
            self.largest_up + later.largest_up,
            self.exchanges + later.exchanges,
            self.unanswered | later.unanswered,
            {name: before.get(name, 0.0) + time for name, time in later.virtual_seconds.items()},
        )
