"""The exchanges of a round: messages to clients, and their replies, taken one after the other.

A round is a generator of exchanges, usually of one. The code that runs it sends the messages of an
exchange, passes each reply to `Exchange.take` as it arrives, and continues the generator when it
waits for no further reply. What the generator returns is the round's outcome.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from flwr.app import Error, Message
from flwr.serverapp import Grid

from .reply_errors import MAX_TRACEBACK, ReplyError, error_reason, printable
from .values import ClientReport, RoundOutcome

logger = logging.getLogger("fedavg_app.strategies")

# Clients choose the texts of their errors, so what is logged of them is bounded.
MAX_LOGGED_TRACEBACKS = 10

# Reads a reply that has no error, and raises a `ReplyError` if it must not be used.
Read = Callable[[Message], ClientReport]
Yielded = TypeVar("Yielded")
Returned = TypeVar("Returned")


class Exchange:
    """Messages, and which of their replies are used.

    Args:
        messages: One for each node that is asked.
        read: Reads a reply. A subclass overrides the method instead: with a method of its own here
            it would keep itself, and models, until Python looks for such cycles.
        is_main: Whether these messages train, or test, the model; others prepare or complete that.

    Attributes:
        messages: The same.
        reports: Of the replies that are used.
        rejected: The reason, by node, for every reply that is not.
    """

    # Whether clients train.
    trains: bool = False
    # The tracebacks that this process has logged.
    logged: ClassVar[set[str]] = set()

    def __init__(
        self,
        messages: Sequence[Message],
        read: Read | None = None,
        *,
        is_main: bool = True,
    ) -> None:
        self.messages, self.is_main, self._read = messages, is_main, read
        self._seen: set[int] = set()
        self.reports: list[ClientReport] = []
        self.rejected: dict[int, ReplyError] = {}

    def take(self, reply: Message) -> bool:
        """Read a reply; return whether it is used. An error or a node's second reply is not."""
        node = self._node_of(reply)
        try:
            if reply.has_error():
                self._log_traceback(node, reply.error)
                raise ReplyError(error_reason(reply.error))
            if node in self._seen:
                raise ReplyError("a second reply from the same node")
            self.reports.append(self.read(reply))
        except ReplyError as error:
            self.rejected[node] = error
            return False
        finally:
            self._seen.add(node)
        return True

    def read(self, message: Message) -> ClientReport:
        """Return the report of a reply without an error.

        Raises:
            ReplyError: It must not be used.
        """
        assert self._read is not None
        return self._read(message)

    def take_all(self, replies: Iterable[Message]) -> None:
        """Read replies as they arrive."""
        for reply in replies:
            self.take(reply)
            del reply  # as large as the model, while the next one is waited for

    def require(self, at_least: int) -> None:
        """Check that at least so many replies are used; ReplyError if there are fewer."""
        if (used := len(self.reports)) < at_least:
            raise ReplyError(f"too few usable replies: {used}, min-replies is {at_least}")

    def reject_all(self, error: ReplyError) -> None:
        """Reject the replies that were used so far."""
        self.rejected |= {report.node_id: error for report in self.reports}
        self.reports = []

    def _node_of(self, reply: Message) -> int:
        """Return the node that a reply is of, or, if it has not answered, that was to answer."""
        answered = reply.metadata.reply_to_message_id
        if reply.has_error() and answered:  # it may be the SuperLink's own reply
            for sent in self.messages:
                if sent.metadata.message_id == answered:
                    return sent.metadata.dst_node_id
        return reply.metadata.src_node_id

    def _log_traceback(self, node: int, error: Error) -> None:
        """Log the traceback of a client's error, each once and the first few only."""
        lines = (error.reason or "").strip()[-MAX_TRACEBACK:].splitlines()
        # Indented, since a client could forge log lines.
        text = "\n".join(f"    {printable(line)}" for line in lines)
        if len(lines) > 1 and text not in self.logged and len(self.logged) < MAX_LOGGED_TRACEBACKS:
            self.logged.add(text)
            logger.debug("node %d failed:\n%s", node, text)


Exchanges = Generator[Exchange, None, RoundOutcome]
Counted = Callable[[Exchange, Iterable[Message]], Iterable[Message]]


def advance(
    steps: Generator[Yielded, Any, Returned], answer: Any = None
) -> tuple[Yielded | None, Returned | None]:
    """Return (what a generator yields next, None), or (None, what it returns at its end)."""
    try:
        return steps.send(answer), None
    except StopIteration as end:
        return None, end.value


class StartedRound:
    """A round whose main messages Flower's `Strategy.start` carries.

    The exchanges before it go over the grid as the round begins, those after it as it ends.

    Args:
        exchanges: The round's.
        grid: Carries the others.
        counted: Returns an exchange's replies, and counts them as they are read.
    """

    def __init__(self, exchanges: Exchanges, grid: Grid, counted: Counted) -> None:
        self._exchanges, self._grid, self._counted = exchanges, grid, counted
        self._exchange, self._outcome = advance(exchanges)
        self._carry(until_main=True)

    @property
    def messages(self) -> list[Message]:
        """The main messages."""
        return list(self._exchange.messages) if self._exchange is not None else []

    def finish(self, replies: Iterable[Message]) -> RoundOutcome:
        """Return the round's outcome, given the replies to its main messages."""
        if self._exchange is not None:
            self._take(self._exchange, replies)
        self._carry()
        assert self._outcome is not None
        return self._outcome

    def _carry(self, *, until_main: bool = False) -> None:
        while self._exchange is not None and not (until_main and self._exchange.is_main):
            self._take(self._exchange, self._grid.send_and_receive(self._exchange.messages))

    def _take(self, exchange: Exchange, replies: Iterable[Message]) -> None:
        exchange.take_all(self._counted(exchange, replies))
        self._exchange, self._outcome = advance(self._exchanges)
