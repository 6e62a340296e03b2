"""A million clients take no more memory than a thousand, and hardly more time."""

import sys
import time

import numpy as np
import pytest
from torch import nn

from tasks.base import Task
from tasks.data.dataset import Dataset, Split
from tests.support.documents import ROOT
from tests.support.processes import succeed
from tests.support.run_folders import only_folder, read_history
from tests.support.usage import measured

pytestmark = pytest.mark.long

EXAMPLES, FEATURES, TESTED = 2_000_000, 4, 1000


def points(options):
    """Return two classes on the two sides of a plane."""
    inputs = np.random.default_rng(0).standard_normal((EXAMPLES + TESTED, FEATURES), np.float32)
    targets = (inputs.sum(axis=1) > 0).astype(np.int64)
    train, test = slice(EXAMPLES), slice(EXAMPLES, None)
    splits = (Split(inputs[part], targets[part]) for part in (train, test))
    return Dataset.of(*splits, options, f"{EXAMPLES:,} made up points")


def unchanged(inputs):
    return inputs


TASK = Task("points", lambda: nn.Linear(FEATURES, 2), points, unchanged, learning_rate=0.1)


def test_run_of_a_million_clients_starts_in_memory_of_2_gb(tmp_path):
    words = [
        f"--task={__name__}:TASK", "--num-clients=1000000", "--fraction-train=0.0001",
        "--num-server-rounds=5", "--local-steps=1", f"--run-dir={tmp_path}",
    ]  # fmt: skip
    started = time.monotonic()
    with measured() as usage:
        succeed([sys.executable, "simulation.py", "run", *words], cwd=ROOT)
    rounds = [line["seconds"] for line in read_history(only_folder(tmp_path))]
    start = time.monotonic() - started - sum(rounds[2:])
    assert usage.memory < 2e9, f"{usage.memory / 1e9:.2f} GB"
    assert start < 300  # 10 on two free cores
    sys.stdout.write(f"{start:.1f} s, {rounds}\n")
