"""A small network, of which each client keeps its own head."""

import torch
from flwr.app import ArrayRecord, RecordDict
from torch import nn

from .torch_training import fit, load_data, size, test

__all__ = ["load_data", "size", "test"]

EPOCHS, HEAD = 3, "classification-head"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 256)
        self.fc2 = nn.Linear(256, 128)
        self.classification_head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.classification_head(torch.relu(self.fc2(x)))


def load_model(arrays: ArrayRecord, state: RecordDict) -> Net:
    """Return the model that was received, with this client's own head if it has one."""
    net = Net()
    net.load_state_dict(arrays.to_torch_state_dict())
    if HEAD in state:
        net.classification_head.load_state_dict(state[HEAD].to_torch_state_dict())
    return net


def save_model(net: Net, state: RecordDict) -> ArrayRecord:
    """Return the model, and keep its head."""
    state[HEAD] = ArrayRecord(net.classification_head.state_dict())
    return ArrayRecord(net.state_dict())


def train(net: nn.Module, trainloader, epochs: int, lr: float) -> float:
    return fit(torch.optim.SGD(net.parameters(), lr=lr), net, trainloader, epochs)
