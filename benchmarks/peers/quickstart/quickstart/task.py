"""Networks, data and training."""

import gzip
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def network(name: str) -> nn.Module:
    """Return the network of one of this project's tasks."""
    if name == "mnist-logistic":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if name == "mnist-2nn":
        hidden = [nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(200, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(7 * 7 * 64, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


@lru_cache(maxsize=2)
def load_mnist(folder: str, part: str) -> tuple[Tensor, Tensor]:
    """Return the standardised images (n, 1, 28, 28) and the labels of "train" or "t10k"."""

    def read(name: str, header: int) -> np.ndarray:
        data = gzip.decompress((Path(folder) / f"{part}-{name}-ubyte.gz").read_bytes())
        return np.frombuffer(data, np.uint8, offset=header).copy()

    images = torch.from_numpy(read("images-idx3", 16)).view(-1, 1, 28, 28).float()
    return (images / 255 - 0.1307) / 0.3081, torch.from_numpy(read("labels-idx1", 8)).long()


def load_client(folder: str, client: int, clients: int, batch_size: int) -> DataLoader:
    """Return the loader of a client's share of the training images."""
    images, labels = load_mnist(folder, "train")
    order = np.random.default_rng(1).permutation(len(labels))
    rows = torch.from_numpy(np.array_split(order, clients)[client])
    return DataLoader(TensorDataset(images[rows], labels[rows]), batch_size, shuffle=True)


def train(model: nn.Module, loader: DataLoader, learning_rate: float, max_steps: int) -> float:
    """Train one epoch, or ``max_steps`` if that is above 0; return the mean loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    criterion = nn.CrossEntropyLoss()
    losses = []
    for images, labels in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) == max_steps:
            break
    return sum(losses) / len(losses)
