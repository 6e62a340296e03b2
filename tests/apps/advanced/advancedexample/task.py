import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from advancedexample import shared


class Net(nn.Module):
    """A small network for images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 256)
        self.fc2 = nn.Linear(256, 128)
        self.classification_head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classification_head(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def tensors(examples: shared.Examples) -> TensorDataset:
    """Return examples as torch's."""
    x, y = map(torch.from_numpy, examples)
    return TensorDataset(x.float(), y)


def load_data(
    partition_id: int, num_partitions: int, batch_size: int
) -> tuple[DataLoader, DataLoader]:
    """Return a client's training and test batches."""
    trainset, testset = map(tensors, shared.load_data(partition_id, num_partitions))
    return DataLoader(trainset, batch_size, shuffle=True), DataLoader(testset, batch_size)


def train(net: Net, trainloader: DataLoader, epochs: int, lr: float) -> float:
    """Train the model; return the mean loss of its batches."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
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
