"""The GPU check, on the CPU with few clients and steps."""

import sys

import pytest
import torch

from benchmarks import gpu_check


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["gpu_check", *arguments])
    threads = torch.get_num_threads()
    try:
        return gpu_check.main()
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def _small(monkeypatch):
    monkeypatch.setattr(gpu_check, "COMPARED", gpu_check.COMPARED[:2])
    monkeypatch.setattr(gpu_check, "TIMED", gpu_check.TIMED[:1])


@pytest.mark.usefixtures("_small")
def test_both_tables_are_printed(monkeypatch, capsys):
    assert run(monkeypatch, "--device", "cpu", "--clients", "2", "3", "--steps", "2") == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if "mnist" in line]
    assert [row[0] for row in rows] == [
        "| mnist-logistic", "| mnist-2nn", "| mnist-2nn", "| mnist-2nn",
    ]  # fmt: skip
    assert [row[1] for row in rows[2:]] == ["2", "3"]
    assert float(rows[0][1]) == 0  # the CPU compared with itself


@pytest.mark.usefixtures("_small")
def test_different_results_end_the_check_with_a_nonzero_status(monkeypatch, capsys):
    def scaled(clients, start, work):
        return [[array * 1.1 for array in trained] for trained in together(clients, start, work)]

    together = gpu_check.together
    monkeypatch.setattr(gpu_check, "together", scaled)
    assert run(monkeypatch, "--device", "cpu", "--clients", "2", "--steps", "2") == 1
    printed = capsys.readouterr().out
    assert printed.count("DIFFERENT") == 2
    assert "ratio" not in printed


@pytest.mark.slow
def test_every_task_is_compared(monkeypatch, capsys):
    assert run(monkeypatch, "--device", "cpu", "--clients", "2", "--steps", "1") == 0
    assert capsys.readouterr().out.count(" ok |") == len(gpu_check.COMPARED)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_one_line_and_a_nonzero_status(monkeypatch, capsys):
    assert run(monkeypatch) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
