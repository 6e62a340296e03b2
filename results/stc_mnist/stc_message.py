"""Bytes of one STC message, as sent, next to the paper's formula and to its authors' accounting.

For VGG11* (the paper's network for CIFAR-10), MNIST-CNN and logistic regression, at p = 1/25, 1/100
and 1/400. "update" is the encoded update; "reply" is all that a client's message holds: head,
update, names and metrics. The update is a random vector: where its largest entries lie changes the
size by the position code's spread only (0.1 %).

    python -m results.stc_mnist.stc_message
"""

import math
from collections.abc import Sequence

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from rich.console import Console
from rich.table import Table

import tasks
from fedavg_app.flower_internals import identify_server
from fedavg_app.server.message_size import message_bytes
from strategies.compression.golomb import parameter
from strategies.compression.largest_entries import max_kept
from strategies.compression.sync_protocol import ReplyStatus, encode_reply
from strategies.compression.ternary import Ternary
from strategies.compression.vector_layout import Layout
from strategies.packed_records import pack_reply
from strategies.reply_validation import METRICS, NUM_EXAMPLES

MODELS = {"VGG11*": "cifar10-vgg11", "MNIST-CNN": "mnist-cnn", "logistic": "mnist-logistic"}


def layout_of(task: str) -> Layout:
    """Return the layout of the task's model."""
    arrays = tasks.load(task).model().state_dict()
    return Layout.of({name: array.numpy() for name, array in arrays.items()})


def authors_bits(sizes: Sequence[int], sparsity: float) -> float:
    """Return what the authors' code counts: k per tensor, no mu, and one bit too many a position.

    Its position bits already hold the unary part's closing zero when it adds another.
    """
    b = parameter(sparsity)
    position = b + 1 / (1 - (1 - sparsity) ** (1 << b)) + 1
    return sum(math.ceil(size * sparsity) for size in sizes) * (position + 1)


def reply_bytes(update: bytes) -> int:
    """Return the bytes of a client's whole reply with this update."""
    identify_server(1)
    content = RecordDict({METRICS: MetricRecord({NUM_EXAMPLES: 600, "train-loss": 0.1})})
    pack_reply(content, encode_reply(ReplyStatus.UPDATE, 1, update))
    request = Message(RecordDict(), dst_node_id=2, message_type="train")
    return message_bytes(Message(content, reply_to=request))


def main() -> None:
    """Print the table."""
    table = Table(title="Bytes of one STC message, and how many times smaller than float32")
    for column in (
        "model", "p", "scope", "k", "dense", "update", "x", "reply", "x", "formula", "x",
        "authors' count", "x",
    ):  # fmt: skip
        table.add_column(column, justify="left" if column in ("model", "scope") else "right")
    rng = np.random.default_rng(0)
    for name, task in MODELS.items():
        layout = layout_of(task)
        vector = rng.standard_normal(layout.size, dtype=np.float32)
        for denominator in (25, 100, 400):
            for scope in ("tensor", "model"):
                compressor = Ternary(1 / denominator, scope)
                update = compressor.encode(vector, layout, rng)
                kept = max_kept(compressor.sparsity, layout.blocks(scope))
                cells = [
                    len(update),
                    reply_bytes(update),
                    compressor.expected_bits(layout.size) / 8,
                ]
                if scope == "tensor":
                    cells.append(authors_bits(layout.sizes, compressor.sparsity) / 8)
                dense = 4 * layout.size
                figures = [
                    text for cell in cells for text in (f"{cell:,.0f}", f"{dense / cell:.1f}")
                ]
                table.add_row(
                    f"{name} ({layout.size:,})", f"1/{denominator}", scope, f"{kept:,}",
                    f"{dense:,}", *figures,
                )  # fmt: skip
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
