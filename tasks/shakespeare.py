"""Shakespeare's plays, character by character (arXiv 1602.05629v4, section 3)."""

from torch import Tensor, nn
from torch.nn import functional

from tasks.base import Task
from tasks.data.shakespeare import END, SHAKESPEARE, SYMBOLS
from tasks.metrics import accuracy


class CharacterLSTM(nn.Module):
    """An embedding of 8, two LSTM layers of 256 and a softmax over 258 symbols: 867,090 parameters.

    The paper says 866,578. That is the count of a cell with one bias vector and peepholes over 258
    symbols: the 256 bytes, the begin and the end of a line. The standard cell, torch's, has no
    peepholes but two bias vectors, so with the same symbols it has 512 parameters more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.output = nn.Linear(256, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        """Return logits (n, t, 258) for symbols (n, 80), t being the longest line's length."""
        # Lines have 42 of the 80 symbols on average: positions empty in all lines are skipped. On
        # a GPU this waits for it once a batch; leaving it out would double the time steps.
        longest = int((symbols != END).any(dim=0).sum())
        states, _ = self.lstm(self.embedding(symbols[:, :longest]))
        logits: Tensor = self.output(states)
        return logits


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy per character; targets are (n, 80), negative where none is."""
    targets = targets[:, : logits.shape[1]]
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def characters(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many characters are predicted correctly, and how many there are."""
    return accuracy(logits, targets[:, : logits.shape[1]])


SHAKESPEARE_LSTM = Task(
    "shakespeare-lstm",
    CharacterLSTM,
    SHAKESPEARE.load,
    Tensor.long,
    learning_rate=1.47,
    target=0.54,
    loss=loss,
    metrics={"accuracy": characters},
    partitions=("natural", "iid"),
    in_parts=True,
    shared_model=True,
    seconds_per_example=7.8e-3,
)
