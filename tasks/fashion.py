"""Fashion-MNIST with STC's LSTM (arXiv 1903.02891) and with the FedAvg paper's MNIST network.

For the LSTM images are resized and standardised as the STC authors' code does it, with MNIST's mean
and deviation; for the CNN they are standardised by their own.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import Task
from tasks.data.mnist import FASHION_MNIST
from tasks.mnist import cnn, prepare, standardise

MEAN, STD = 0.2860, 0.3530


class RowLSTM(nn.Module):
    """Two LSTM layers of 128 that read an image row by row, and a linear layer: 216,330 parameters.

    The image has 32 rows of 32 pixels; the output layer reads the state after the last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(32, 128, num_layers=2, batch_first=True)
        self.output = nn.Linear(128, 10)

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits (n, 10) for images (n, 32, 32)."""
        states, _ = self.lstm(rows)
        logits: Tensor = self.output(states[:, -1])
        return logits


def prepare_rows(images: Tensor) -> Tensor:
    """Turn uint8 images (n, 28, 28) into standardised float32 (n, 32, 32), resized."""
    resized = functional.interpolate(
        images.to(torch.float32).unsqueeze(1), size=32, mode="bilinear", antialias=True
    )
    # Rounded to whole grey values, as resizing a stored image does.
    return prepare(resized.round_().squeeze(1)).squeeze(1)


FASHION_LSTM = Task(
    "fashion-lstm",
    RowLSTM,
    FASHION_MNIST.load,
    prepare_rows,
    learning_rate=0.1,
    in_parts=True,
    shared_model=True,
    seconds_per_example=8.3e-4,
)
FASHION_CNN = Task(
    "fashion-cnn",
    cnn,
    FASHION_MNIST.load,
    partial(standardise, mean=MEAN, deviation=STD),
    learning_rate=0.1,
    in_parts=True,
    shared_model=True,
    channels_last=True,
    seconds_per_example=1.3e-3,
)
