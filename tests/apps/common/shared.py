"""What the apps share: their data, a grid that counts bytes, and the saving of results.

It is copied into each of the apps here before they run, since Flower takes a folder only.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from sklearn.datasets import load_digits

Examples = tuple[np.ndarray, np.ndarray]


def digits() -> tuple[Examples, Examples]:
    """Return scikit-learn's images of digits: 1,440 to train with, 357 to test with."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x, y = images[order] / 16, labels[order]
    return (x[:1440], y[:1440]), (x[1440:], y[1440:])


def load_data(
    partition_id: int, num_partitions: int, seed: int | None = None
) -> tuple[Examples, Examples]:
    """Return a client's training examples, shuffled by a seed, and its test examples.

    They are an IID share, split 80 to 20.
    """
    x, y = (array[partition_id::num_partitions] for array in digits()[0])
    order = np.arange(len(y) * 4 // 5)
    test = x[len(order) :], y[len(order) :]
    if seed is not None:
        order = np.random.default_rng(seed).permutation(order)
    return (x[order], y[order]), test


def server_data() -> Examples:
    """Return the server's test examples."""
    return digits()[1]


def size(examples: Examples) -> int:
    return len(examples[1])


class MeasuredGrid:
    """A grid that counts the bytes of the records that it sends and receives.

    It sorts the replies by client: sums of floats depend on their order.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self.bytes_down = self.bytes_up = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(self._sent(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._received(self._grid.pull_messages(message_ids))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = self._grid.send_and_receive(self._sent(messages), timeout=timeout)
        return self._received(replies)

    def _sent(self, messages: Iterable[Message]) -> list[Message]:
        messages = list(messages)
        self.bytes_down += sum(map(_size, messages))
        return messages

    def _received(self, replies: Iterable[Message]) -> list[Message]:
        replies = sorted(replies, key=_client)
        self.bytes_up += sum(map(_size, replies))
        return replies


def save(path: str, arrays: ArrayRecord, accuracy: float, grid: MeasuredGrid) -> None:
    """Write the final arrays (as "array:NAME"), the accuracy and the bytes, if there is a path."""
    if path:
        named = {f"array:{name}": array.numpy() for name, array in arrays.items()}
        sizes = {"bytes_up": grid.bytes_up, "bytes_down": grid.bytes_down}
        np.savez(path, accuracy=accuracy, **sizes, **named)


def _size(message: Message) -> int:
    if message.has_error():
        return 0
    return sum(record.count_bytes() for record in message.content.values())


def _client(message: Message) -> float:
    if message.has_error():
        return -1
    metrics = message.content.metric_records.values()
    return max((float(record.get("partition-id", -1)) for record in metrics), default=-1)
