"""The command `new-task`: writes a task to start from, and its test."""

import keyword
from pathlib import Path
from typing import Annotated

import typer

from fedavg_app.errors import ConfigError

TASK = '''"""NAME: what is learned, from which data, and what it is judged by."""

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from tasks.base import Task
from tasks.data.cache import load_cached
from tasks.data.dataset import DataOptions, Dataset, Split
from tasks.metrics import accuracy


def parse() -> tuple[Split, Split]:
    """Return the training and the test examples.

    Made up here: read your files instead. Inputs are arrays (n, ...) of any numbers, or a
    dictionary of them; classes are int64, numbered from 0.
    """
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 8)).astype(np.float32)
    classes = (rows[:, 0] + rows[:, 1] > 0).astype(np.int64)
    return Split(rows[:800], classes[:800]), Split(rows[800:], classes[800:])


def load(options: DataOptions) -> Dataset:
    """Return the data; they are parsed once, and all processes share them."""
    return load_cached("NAME", parse, DataOptions("embedded"), "NAME, made up")


def prepare(rows: Tensor) -> Tensor:
    """Turn some stored inputs into the model's."""
    return rows


def network() -> nn.Module:
    """Return a new network."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


TASK = Task(
    "NAME",
    network,
    load,
    prepare,
    learning_rate=0.1,
    loss=functional.cross_entropy,
    metrics={"accuracy": accuracy},
)
'''

TEST = '''"""The checks of NAME: its data, model, loss and metrics."""

from NAME_task import TASK

from tasks.checking.all_checks import all_checks
from tasks.data.dataset import DataOptions


def test_nothing_is_wrong_with_the_task():
    found = list(all_checks(TASK, TASK.dataset(DataOptions()), seed=1))
    assert [str(finding) for finding in found if finding.kind == "error"] == []
'''


def new_task(
    name: Annotated[str, typer.Argument(help="the task's name, as in a Python name")],
    *,
    folder: Annotated[Path, typer.Option(help="where to write the files")] = Path(),
) -> None:
    """Write NAME_task.py, a whole task to start from, and test_NAME_task.py."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError("NAME", name, "give letters, digits and '_', as in a Python name")
    files = {f"{name}_task.py": TASK, f"test_{name}_task.py": TEST}
    for file in files:
        if (folder / file).exists():
            raise ConfigError("NAME", name, f"{folder / file} exists already")
    for file, content in files.items():
        try:
            (folder / file).write_text(content.replace("NAME", name), encoding="utf-8")
        except OSError as error:
            raise ConfigError("folder", str(folder), f"cannot write: {error.strerror}") from None
        typer.echo(folder / file)
    typer.echo(f"check it with: fedavg check {name}_task:TASK")
