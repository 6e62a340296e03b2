"""A grid whose replies come at given times of a simulated clock."""

from types import SimpleNamespace

from flwr.app import Message, RecordDict

from fedavg_app.flower_internals import BaseGrid, assign_message_id, identify_server
from fedavg_app.server import node_registry, polling


class Clock:
    """A clock that moves only when somebody sleeps.

    Attributes:
        now: Seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def install(self, monkeypatch) -> "Clock":
        """Replace the clock of the modules that wait for nodes and replies."""
        time = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        for module in (polling, node_registry):
            monkeypatch.setattr(module, "time", time)
        return self


class ScriptedGrid(BaseGrid):
    """Node 10 + i answers after ``delays[i]`` seconds of the clock (None: never).

    Attributes:
        num_polls: How often the grid was polled for replies.
        pending: What is still to be fetched, by message id: when it is due, and the message.
    """

    def __init__(self, clock: Clock, delays: list[float | None]) -> None:
        identify_server(1)  # as the engines do
        self.clock, self.delays = clock, delays
        self.num_polls = 0
        self.pending: dict[str, tuple[float, Message]] = {}

    def get_node_ids(self) -> list[int]:
        return list(range(10, 10 + len(self.delays)))

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids.append(assign_message_id(message))
            delay = self.delays[message.metadata.dst_node_id - 10]
            if delay is not None:
                self.pending[ids[-1]] = (self.clock.now + delay, message)
        return ids

    def pull_messages(self, message_ids):
        self.num_polls += 1
        due = [
            message_id
            for message_id, (when, _) in self.pending.items()
            if message_id in message_ids and when <= self.clock.now
        ]
        return [self.reply(self.pending.pop(message_id)[1]) for message_id in due]

    def reply(self, message: Message) -> Message:
        return Message(RecordDict(), reply_to=message)


def training_messages(nodes) -> list[Message]:
    """Return one empty training message for each node."""
    return [Message(RecordDict(), dst_node_id=node, message_type="train") for node in nodes]
