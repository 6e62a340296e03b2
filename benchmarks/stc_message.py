"""Bytes of one STC message, as sent, next to the paper's formula and to its authors' accounting.

For VGG11* (the paper's network for CIFAR-10, by the shapes of the authors' code), MNIST-CNN and
logistic regression, at p = 1/25, 1/100 and 1/400. "update" is the encoded update; "reply" is all
that a client's message holds: head, update, names and metrics. The update is a random vector:
where its largest entries lie changes the size by the position code's spread only (0.1 %).

    python -m benchmarks.stc_message
"""

import math
from itertools import pairwise

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from rich.console import Console
from rich.table import Table

import tasks
from fedavg_app.internals import identify_server
from fedavg_app.wire import count_bytes
from strategies.compression.golomb import parameter
from strategies.compression.ternary import ternarise
from strategies.compression.theory import ternary_bits
from strategies.compression.topk import keep_count
from strategies.raw import raw_array
from strategies.synced import HAS_UPDATE, PAYLOAD, UPDATE, encode_reply

CHANNELS = (3, 32, 64, 128, 128, 128, 128, 128, 128)
VGG11S = [
    *(size for before, after in pairwise(CHANNELS) for size in (before * after * 9, after)),
    *(128 * 128, 128, 128 * 128, 128, 128 * 10, 10),
]


def sizes_of(task: str) -> list[int]:
    """Return the sizes of the task's tensors."""
    return [tensor.numel() for tensor in tasks.load(task).model().state_dict().values()]


def authors_bits(sizes: list[int], sparsity: float) -> float:
    """Return what the authors' code counts: k per tensor, no mu, and one bit too many a position.

    Its position bits already hold the unary part's closing zero when it adds another.
    """
    b = parameter(sparsity)
    position = b + 1 / (1 - (1 - sparsity) ** (1 << b)) + 1
    return sum(math.ceil(size * sparsity) for size in sizes) * (position + 1)


def reply_bytes(update: bytes) -> int:
    """Return the bytes of a client's whole reply with this update."""
    identify_server(1)
    payload = raw_array(encode_reply(HAS_UPDATE, 1, update))
    metrics = MetricRecord({"num-examples": 600, "train-loss": 0.1})
    content = RecordDict({UPDATE: ArrayRecord({PAYLOAD: payload}), "metrics": metrics})
    return count_bytes(
        Message(content, reply_to=Message(RecordDict(), dst_node_id=2, message_type="train"))
    )


def main() -> None:
    """Print the table."""
    table = Table(title="Bytes of one STC message, and how many times smaller than float32")
    for column in (
        "model", "p", "scope", "k", "dense", "update", "x", "reply", "x", "formula", "x",
        "authors' count", "x",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column in ("model", "scope") else "right")
    models = {
        "VGG11*": VGG11S,
        "MNIST-CNN": sizes_of("mnist-cnn"),
        "logistic": sizes_of("mnist-logistic"),
    }
    rng = np.random.default_rng(0)
    for name, sizes in models.items():
        total = sum(sizes)
        vector = rng.standard_normal(total, dtype=np.float32)
        for denominator in (25, 100, 400):
            p = 1 / denominator
            for scope, blocks in (("tensor", sizes), ("model", [total])):
                update = ternarise(vector, p, blocks).encode()
                kept = sum(keep_count(size, p) for size in blocks)
                cells = [len(update), reply_bytes(update), ternary_bits(total, p) / 8]
                if scope == "tensor":
                    cells.append(authors_bits(sizes, p) / 8)
                figures = [
                    text for cell in cells for text in (f"{cell:,.0f}", f"{4 * total / cell:.1f}")
                ]
                table.add_row(
                    f"{name} ({total:,})", f"1/{denominator}", scope, f"{kept:,}",
                    f"{4 * total:,}", *figures,
                )  # fmt: skip
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
