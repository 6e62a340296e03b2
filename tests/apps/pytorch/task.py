"""A small CNN with batch normalisation, for images of 8 x 8 pixels."""

import torch
from flwr.app import ArrayRecord, RecordDict
from torch import nn

from .torch_training import fit, load_data, server_data, size, test

__all__ = ["load_data", "server_data", "size", "test"]

EPOCHS, TRAIN_CONFIG = 1, {"lr": 0.02}


class Net(nn.Module):
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
        x = self.pool(torch.relu(self.bn1(self.conv1(x))))
        x = self.pool(torch.relu(self.bn2(self.conv2(x))))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def initial_arrays(seed: int) -> ArrayRecord:
    torch.manual_seed(seed)
    return ArrayRecord(Net().state_dict())


def load_model(arrays: ArrayRecord, state: RecordDict) -> Net:
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    return net


def save_model(net: Net, state: RecordDict) -> ArrayRecord:
    return ArrayRecord(net.state_dict())


def train(net: nn.Module, trainloader, epochs: int, lr: float) -> float:
    """Train the model; return the mean loss of its batches."""
    return fit(torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9), net, trainloader, epochs)
