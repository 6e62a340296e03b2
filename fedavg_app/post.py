"""A round's messages: to whom they go, and the replies that the round takes."""

from collections.abc import Iterable, Iterator
from math import ceil

from flwr.app import Message
from flwr.serverapp import Grid

from fedavg_app.cohort import CohortGrid
from fedavg_app.exchange import arrivals, send
from fedavg_app.nodes import Roster
from fedavg_app.plan import Plan
from fedavg_app.sampling import cohort_size, sample
from fedavg_app.wire import count_bytes
from strategies.screening import error_reason

# Messages expire so long after the round's deadline, which is thus what a late reply runs into.
EXPIRY_SECONDS = 1.0


class Post:
    """Draws the cohorts of a run, and drops what comes after its round is over.

    Args:
        grid: Carries the messages.
        roster: Who is there.
        plan: How many take part, and how long they are waited for.
    """

    def __init__(self, grid: Grid, roster: Roster, plan: Plan) -> None:
        self._grid, self._roster, self._plan = grid, roster, plan
        self._late: set[str] = set()

    def cohort(self, server_round: int, purpose: str) -> CohortGrid:
        """Return the grid with the nodes of the clients that take part, in the clients' order.

        For "train" that is a C-fraction of all K clients and those selected beyond; fewer where
        fewer are there.
        """
        plan, there = self._plan, self._roster.clients
        size = self._wanted(purpose)
        if purpose == "train":
            size = ceil(size * (1 + plan.over_selection))
        clients = sample(plan.seed, server_round, purpose, size, there)
        return CohortGrid(self._grid, [self._roster.holders[client] for client in clients])

    def exchange(self, cohort: CohortGrid, messages: Iterable[Message], purpose: str) -> "Exchange":
        """Return the exchange of the messages, which are sent as its replies are asked for."""
        self._drop_late()
        return Exchange(
            cohort, list(messages), self._plan.round_timeout, self._wanted(purpose), self._late
        )

    def _wanted(self, purpose: str) -> int:
        plan = self._plan
        fraction = plan.fraction_train if purpose == "train" else plan.fraction_evaluate
        return cohort_size(fraction, self._roster.num_clients)

    def _drop_late(self) -> None:
        """Fetch the replies that came after their round; a grid keeps them until somebody does."""
        if self._late:
            replies = self._grid.pull_messages(list(self._late))
            self._late -= {reply.metadata.reply_to_message_id for reply in replies}


class Exchange:
    """Messages out, and the replies to them in the order of the cohort.

    Replies arrive in any order, and sums of floats depend on it: in the clients' order the same
    replies give the same model. Each is passed on as soon as those before it are there, so that
    decoding and adding it up go on while others still train.

    Args:
        cohort: The grid, with the nodes in their order.
        messages: One for each node.
        timeout: Seconds from the sending after which those that are missing are passed by, and
            after which nobody is given the messages any more; None waits.
        enough: Replies, errors not counted, after which the others are passed by.
        late: Is told the ids of the messages whose replies were not waited for.

    Attributes:
        sent: The messages.
        bytes_up: The bytes of the replies passed on so far.
        silent: Why there is none, by node, for every message without a reply of its node; those
            that were not needed any more are not among them.
    """

    def __init__(
        self,
        cohort: CohortGrid,
        messages: list[Message],
        timeout: float | None,
        enough: int,
        late: set[str],
    ) -> None:
        self.sent = messages
        self.bytes_up = 0
        self.silent: dict[int, str] = {}
        self._cohort, self._timeout, self._enough, self._late = cohort, timeout, enough, late

    def replies(self) -> Iterator[Message]:
        """Send the messages; yield the replies that come in time."""
        if self._timeout is not None:
            for message in self.sent:
                # Nobody is to begin with it later: a node that was slow once would otherwise work
                # off what is long over, and be late with all that follows.
                message.metadata.ttl = self._timeout + EXPIRY_SECONDS
        place = {node: number for number, node in enumerate(self._cohort.get_node_ids())}
        nodes = [message.metadata.dst_node_id for message in self.sent]
        asked: dict[str, int] = {}
        for message_id, node in zip(send(self._cohort, self.sent), nodes, strict=True):
            if message_id:
                asked[message_id] = node
            else:
                self.silent[node] = "it could not be sent a message"
        missing = sorted(asked, key=lambda message_id: place.get(asked[message_id], len(place)))
        came: dict[str, Message] = {}
        usable = 0
        for replies in arrivals(self._cohort, asked, self._timeout):
            for reply in replies:
                message_id = reply.metadata.reply_to_message_id
                came[message_id] = reply
                usable += not reply.has_error()
            while missing and missing[0] in came:
                first = missing.pop(0)
                yield from self._pass(came.pop(first), asked[first])
            if usable >= self._enough:
                break
        enough = usable >= self._enough
        for message_id in missing:
            if message_id in came:
                yield from self._pass(came.pop(message_id), asked[message_id])
            else:
                self._late.add(message_id)
                if not enough:
                    self.silent[asked[message_id]] = "no reply in time"

    def _pass(self, reply: Message, node: int) -> Iterator[Message]:
        """Yield the reply, unless it is Flower's, about a node that cannot be reached."""
        if reply.metadata.src_node_id == node:
            self.bytes_up += count_bytes(reply)
            yield reply
        elif reply.has_error():
            self.silent[node] = error_reason(reply.error)
        else:
            self.silent[node] = f"node {reply.metadata.src_node_id} answered for it"
