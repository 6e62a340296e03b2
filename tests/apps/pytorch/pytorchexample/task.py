"""pytorchexample: A Flower / PyTorch app."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small CNN with batch normalisation, for images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(2)
        self.fc1 = nn.Linear(64 * 2 * 2, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Do the forward pass."""
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = self.pool(torch.relu(self.bn2(self.conv2(x))))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Return scikit-learn's images of digits: 1,440 to train with, 357 to test with."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.from_numpy(images[order] / 16).float().reshape(-1, 1, 8, 8)
    y = torch.from_numpy(labels[order])
    return TensorDataset(x[:1440], y[:1440]), TensorDataset(x[1440:], y[1440:])


def load_data(
    partition_id: int, num_partitions: int, batch_size: int
) -> tuple[DataLoader, DataLoader]:
    """Return a client's training and test batches: an IID share, split 80 to 20."""
    images, labels = digits()[0].tensors
    x, y = images[partition_id::num_partitions], labels[partition_id::num_partitions]
    cut = len(y) * 4 // 5
    trainset, testset = TensorDataset(x[:cut], y[:cut]), TensorDataset(x[cut:], y[cut:])
    return DataLoader(trainset, batch_size, shuffle=True), DataLoader(testset, batch_size)


def train(net: Net, trainloader: DataLoader, epochs: int, lr: float) -> float:
    """Train the model; return the mean loss of its batches."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in trainloader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(trainloader))


def test(net: Net, testloader: DataLoader) -> tuple[float, float]:
    """Return the model's loss and accuracy."""
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
