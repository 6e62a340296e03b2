"""Which replies of a round are used: the others are rejected, each for a reason, and logged."""

import logging
from collections.abc import Callable, Iterable
from typing import ClassVar

from flwr.app import Error, Message

from strategies.metrics import partial_metrics
from strategies.reply_validation import (
    MAX_TRACEBACK,
    ClientReport,
    ReplyError,
    error_reason,
    printable,
    shorten,
)

logger = logging.getLogger("fedavg_app.strategies")

# Clients choose the texts of their errors, so what is logged of them is bounded.
MAX_LOGGED_TRACEBACKS = 10

# Called with the node of a rejected reply, before the next one is taken.
OnRejected = Callable[[int], None]


class Screening:
    """Screens the replies of a round, or of an evaluation.

    Attributes:
        reports: Of the replies that are used.
        rejected: The reason, by node, for every reply that is not.
    """

    # The tracebacks that this process has logged.
    logged: ClassVar[set[str]] = set()

    def __init__(self) -> None:
        self.reports: list[ClientReport] = []
        self.rejected: dict[int, ReplyError] = {}

    def run(
        self,
        replies: Iterable[Message],
        use: Callable[[Message], ClientReport],
        on_rejected: OnRejected | None,
        at_least: int = 1,
    ) -> None:
        """Give the replies to ``use`` as they come, but for errors and a node's second one.

        Where fewer than ``at_least`` are valid, all are rejected.
        """
        seen: set[int] = set()
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    self._log_traceback(node, reply.error)
                    raise ReplyError(error_reason(reply.error))
                if node in seen:
                    raise ReplyError("a second reply from the same node")
                self.reports.append(use(reply))
            except ReplyError as error:
                self.rejected[node] = error
                if on_rejected is not None:
                    on_rejected(node)
            seen.add(node)
        if len(self.reports) < at_least:
            few = f"too few usable replies: {len(self.reports)}, min-replies is {at_least}"
            self.reject_all(ReplyError(few))

    def reject_all(self, error: ReplyError) -> None:
        """Reject the replies that were used so far."""
        self.rejected |= {report.node_id: error for report in self.reports}
        self.reports = []

    def log(self, server_round: int, purpose: str) -> dict[str, str]:
        """Log what was rejected; return `partial_metrics` of the others, which are logged, too."""
        for node, reason in self.rejected.items():
            logger.warning("round %d: reply of node %d rejected: %s", server_round, node, reason)
        partial = partial_metrics(self.reports)
        for name, number in partial.items():
            text = "round %d: %s metric %s is that of %s: the others' is missing, not finite or "
            text += "absurd"
            logger.warning(text, server_round, purpose, printable(shorten(name)), number)
        return partial

    def _log_traceback(self, node: int, error: Error) -> None:
        """Log the traceback of a client's error, each once and the first few only."""
        lines = (error.reason or "").strip()[-MAX_TRACEBACK:].splitlines()
        # Indented, since a client could forge log lines.
        text = "\n".join(f"    {printable(line)}" for line in lines)
        is_new = text not in self.logged and len(self.logged) < MAX_LOGGED_TRACEBACKS
        if len(lines) > 1 and is_new:
            self.logged.add(text)
            logger.debug("node %d failed:\n%s", node, text)
