"""A grid that drops replies and restarts clients at random."""

from collections.abc import Iterable

from flwr.app import Message, RecordDict

from fedavg_app.config import RunConfig
from fedavg_app.flower_internals import error_reply
from tasks.training.random_streams import numpy_generator
from tests.support.local_grid import LocalGrid


class UnreliableGrid(LocalGrid):
    """Before it trains a client may lose its state; after it trained its reply may be lost.

    Args:
        config: The run's settings.
        dropped: The share of training replies that arrive as errors.
        restarted: The share of participants that lose their state first.

    Attributes:
        num_dropped: How many replies were lost so far.
        num_restarted: How many states were lost so far.
    """

    def __init__(self, config: RunConfig, dropped: float, restarted: float) -> None:
        super().__init__(config.model_dump(by_alias=True), config.num_clients)
        self._dropped, self._restarted = dropped, restarted
        self._rng = numpy_generator(config.seed, "disturbance")
        self.num_dropped = self.num_restarted = 0

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            training = message.metadata.message_type == "train"
            if training and self._rng.random() < self._restarted:
                self.contexts[message.metadata.dst_node_id].state = RecordDict()
                self.num_restarted += 1
            ids += super().push_messages([message])
            if training and self._rng.random() < self._dropped:
                self._replies[ids[-1]] = error_reply(message, "dropped")
                self.num_dropped += 1
        return ids
