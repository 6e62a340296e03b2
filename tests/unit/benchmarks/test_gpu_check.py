"""The GPU check, on the CPU and without its timing."""

import sys

import pytest
import torch

import tasks
from benchmarks import gpu_check


@pytest.fixture(autouse=True)
def _settings():
    before = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_num_threads(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["gpu_check", *arguments])
    return gpu_check.main()


@pytest.mark.slow
def test_every_task_is_compared(monkeypatch, capsys):
    assert run(monkeypatch, "--device", "cpu", "--workers") == 0
    assert capsys.readouterr().out.count("| 0.0e+00 | ok |") == len(tasks.names())


def test_different_results_end_the_check_with_a_nonzero_status(monkeypatch, capsys):
    values = iter([1.0, 1.1])
    monkeypatch.setattr(gpu_check, "trained", lambda *_: [torch.tensor(next(values))])
    monkeypatch.setattr(tasks, "names", lambda: ["mnist-logistic"])
    assert run(monkeypatch, "--device", "cpu") == 1
    printed = capsys.readouterr().out
    assert printed.count("DIFFERENT") == 1
    assert "workers" not in printed


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_one_line_and_a_nonzero_status(monkeypatch, capsys):
    assert run(monkeypatch) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
