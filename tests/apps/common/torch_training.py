"""What the apps of torch share; `torch.manual_seed` fixes the order of the batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from . import shared

torch.set_num_threads(1)


def tensors(examples: shared.Examples) -> TensorDataset:
    """Return examples as torch's, images of one channel."""
    x, y = map(torch.from_numpy, examples)
    return TensorDataset(x.float().reshape(-1, 1, 8, 8), y)


def load_data(
    partition_id: int, num_partitions: int, batch_size: int = 32, seed: int = 0
) -> tuple[DataLoader, DataLoader]:
    """Return a client's training and test batches."""
    torch.manual_seed(seed)
    trainset, testset = map(tensors, shared.load_data(partition_id, num_partitions))
    return DataLoader(trainset, batch_size, shuffle=True), DataLoader(testset, batch_size)


def server_data() -> DataLoader:
    return DataLoader(tensors(shared.server_data()), batch_size=100)


def size(loader: DataLoader) -> int:
    return len(loader.dataset)


def fit(optimizer: torch.optim.Optimizer, net: nn.Module, batches: DataLoader, epochs: int):
    """Train the model; return the mean loss of its batches."""
    criterion = nn.CrossEntropyLoss()
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(batches))


def test(net: nn.Module, testloader: DataLoader) -> tuple[float, float]:
    criterion = nn.CrossEntropyLoss(reduction="sum")
    net.eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in testloader:
            outputs = net(images)
            loss += criterion(outputs, labels).item()
            correct += int((outputs.argmax(1) == labels).sum())
            count += len(labels)
    return loss / count, correct / count
