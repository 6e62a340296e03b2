"""`fedavg check` as a user calls it: for every task, and for a task with a fault."""

import pytest

import strategies
import tasks
from tests.support import data_slices
from tests.support.documents import ROOT, examples
from tests.support.processes import simulation


def kinds(output):
    """Return the kinds of the lines above the sizes of messages."""
    lines = output.partition("bytes of a client's first message")[0].splitlines()
    return {line.split()[0] for line in lines}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "mnist-2nn" else pytest.mark.slow)
        for name in tasks.names()
    ],
)
def test_built_in_tasks_have_no_fault(tmp_path, name):
    folder = data_slices.write(name, tmp_path / "data")
    ended = simulation("check", name, f"--data-dir={folder}", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert kinds(ended.stdout) == {"ok"}
    assert "in_parts: the same numbers as torch's own steps, " in ended.stdout
    sizes = [line.split() for line in ended.stdout.splitlines() if line.startswith("  ")]
    assert {name for name, *_ in sizes} == set(strategies.names())
    down, up = ({line[0]: int(line[k].replace(",", "")) for line in sizes} for k in (1, 2))
    assert down["fedavg"] > up["fedavg"] > 25 * up["stc"]


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


def test_a_fault_is_named_and_the_command_fails(tmp_path):
    (tmp_path / "faulty.py").write_text(FAULTY)
    guide = examples(ROOT / "docs" / "writing-a-task.md")
    (tmp_path / "digits_task.py").write_text(guide["digits_task.py"])
    ended = simulation("check", "faulty:TASK", cwd=tmp_path)
    assert ended.returncode == 1
    line = "error   dataset: targets are 1 to 10, but the model has 10 outputs, for the classes 0"
    assert line in ended.stdout
    assert "subtract 1 from the targets" in ended.stdout
    assert ended.stderr.splitlines()[-1] == "error: 1 error in faulty:TASK"
