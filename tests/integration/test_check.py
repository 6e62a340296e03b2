"""`fedavg check` as a user calls it: for every task, and for a task with a fault."""

import pytest

import strategies
import tasks
from tests.support import data_slices
from tests.support.documents import ROOT, examples

COMPLEX = """
from dataclasses import replace
import torch
from torch import nn
from tasks.mnist import MNIST_LOGISTIC

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(784, 10, dtype=torch.complex64))

    def forward(self, x):
        return (x.flatten(1).to(torch.complex64) @ self.weight).abs()

TASK = replace(MNIST_LOGISTIC, name="mnist-complex", model=Net, in_parts=False)
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "mnist-2nn" else pytest.mark.slow)
        for name in tasks.names()
    ],
)
def test_built_in_tasks_have_no_fault(command_line, tmp_path, name):
    folder = data_slices.write(name, tmp_path / "data")
    status, shown, error = command_line("check", name, f"--data-dir={folder}")
    assert status == 0, error
    findings = shown.partition("bytes of a client's first message")[0].splitlines()
    assert {line.split()[0] for line in findings} == {"ok"}
    assert "in_parts: the same numbers as torch's own steps, " in shown
    sizes = [line.split() for line in shown.splitlines() if line.startswith("  ")]
    assert [line[:3] for line in sizes if len(line) == 4] == [["secure-sum", "in", "stages"]]
    assert {name for name, *_ in sizes} == set(strategies.names())
    sizes = [line for line in sizes if len(line) == 3]
    down, up = ({line[0]: int(line[k].replace(",", "")) for line in sizes} for k in (1, 2))
    assert down["fedavg"] > up["fedavg"] > 25 * up["stc"]


def test_data_are_split_as_a_run_splits_them(command_line, tmp_path, monkeypatch):
    """A task that has only owners is checked without a partition, or with one that it has."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "owned.py").write_text(OWNED)
    for name in ("TASK", "OWN"):
        status, shown, error = command_line("check", f"owned:{name}")
        assert status == 0, error
        assert "  fedavg " in shown
    status, _, error = command_line("check", "owned:TASK", "--num-clients=6")
    assert status == 1
    assert "partition = 'iid': mlp can be split by: natural" in error
    status, shown, error = command_line(
        "check", "owned:TASK", "--partition=natural", "--num-clients=6"
    )
    assert status == 0, error
    assert "ok      partition: natural: 6 clients have 40 to 40 examples" in shown
    own = ("--partition=owned:unequal", "--partition-args=first = 100", "--num-clients=2")
    status, shown, error = command_line("check", "owned:TASK", *own)
    assert status == 0, error
    assert "ok      partition: owned:unequal: 2 clients have 100 to 140 examples" in shown
    status, _, error = command_line("check", "owned:TASK", "--partition=owned:nothing")
    assert status == 1
    assert "owned" in error
    status, _, error = command_line("check", "owned:TASK", "--partition=owned:broken")
    assert status == 1
    assert "partition = 'owned:broken': it raised KeyError: 'hospital' (" in error


OWNED = """
import dataclasses
import numpy as np
from tests.support import networks

def load(options):
    data = networks.images(options)
    train, test = (
        dataclasses.replace(split, owners=np.arange(len(split)) % 6)
        for split in (data.train, data.test)
    )
    return dataclasses.replace(data, train=train, test=test)

def unequal(labels, num_clients, seed, first):
    return np.split(np.arange(len(labels)), [first])

def broken(labels, num_clients, seed):
    return {"clinic": labels}["hospital"]

TASK = dataclasses.replace(networks.MLP, dataset=load, partitions=("natural",))
OWN = dataclasses.replace(networks.MLP, dataset=load, partitions=())
"""

FAULTY = '''
"""A task whose labels begin with 1."""
import dataclasses
import digits_task

def load(options):
    data = digits_task.load_digits(options)
    moved = [dataclasses.replace(s, targets=s.targets + 1) for s in (data.train, data.test)]
    return dataclasses.replace(data, train=moved[0], test=moved[1])

TASK = dataclasses.replace(digits_task.TASK, dataset=load)
'''


def test_a_fault_is_named_and_the_command_fails(command_line, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "faulty.py").write_text(FAULTY)
    guide = examples(ROOT / "docs" / "writing-a-task.md")
    (tmp_path / "digits_task.py").write_text(guide["digits_task.py"])
    status, shown, error = command_line("check", "faulty:TASK")
    assert status == 1
    assert "error   loss: raised IndexError for outputs float32 (8, 10) and" in shown
    assert "Target 10 is out of bounds. Number the classes from 0" in shown
    assert error.splitlines()[-1] == "error: 1 error in faulty:TASK"


def test_a_task_that_no_strategy_can_train_is_an_error(command_line, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "complex_task.py").write_text(COMPLEX)
    status, _, error = command_line("check", "complex_task:TASK")
    assert (status, error.splitlines()[-1]) == (1, "error: no strategy can train mnist-complex")
