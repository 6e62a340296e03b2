"""`list`."""

import sys

import pytest

import strategies
import tasks
from fedavg_app.cli.main import main
from strategies import compression


@pytest.mark.parametrize(
    ("kind", "names", "details"),
    [
        ("tasks", tasks.names(), ["199,210 parameters", "target 0.97", "natural"]),
        ("strategies", strategies.names(), ["sparsity-up = 0.0025", "weights = 'samples'"]),
        ("compressors", compression.names(), ["sparsity"]),
        ("feedback", ["ef21", "momentum", "none", "residual"], ["momentum = 0.9"]),
        ("server-optimizers", ["adam", "none", "sgd", "yogi"], ["learning-rate = 0.1"]),
        ("partitions", ["iid", "shards", "natural"], ["shards-per-client = 2"]),
    ],
)
def test_list_has_names_and_arguments(monkeypatch, capsys, kind, names, details):
    monkeypatch.setattr(sys, "argv", ["fedavg", "list", kind])
    monkeypatch.setenv("COLUMNS", "250")
    assert main() == 0
    shown = capsys.readouterr().out
    for text in [*names, *details]:
        assert text in shown
