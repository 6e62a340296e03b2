"""Server and clients hold the same examples, or the run ends in one line before round 1."""

import numpy as np
import pytest

from fedavg_app.client import client_process
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from tests.support.in_process import run_here

MODULE = '''
"""A task whose test set is drawn without a seed, and a partition without one."""
import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split
from torch import nn
from tasks.base import Task
from tasks.data.dataset import Dataset, Split

def load(options):
    x, y = datasets.load_digits(return_X_y=True)
    a, b, c, d = train_test_split(x.astype(np.float32) / 16, y.astype(np.int64))
    return Dataset(Split(a, c), Split(b, d), options, "digits", "none")

def model():
    return nn.Sequential(nn.Linear(64, 10))

def identity(x):
    return x

def shuffled(labels, num_clients, seed):
    return np.array_split(np.random.permutation(len(labels)), num_clients)

TASK = Task("drawn", model, load, identity, learning_rate=0.1)
'''
KEYS = {"num-clients": 4, "data-source": "embedded", "num-server-rounds": 1}
LINES = {
    "task": "error: task = 'drawn:TASK': its dataset() gives the server and a client different",
    "partition": "error: partition = 'drawn:shuffled': it gives the server and a client different",
}
VALUES = {
    "task": {"task": "drawn:TASK"},
    "partition": {"task": "mnist-logistic", "partition": "drawn:shuffled"},
}


@pytest.fixture
def _module(tmp_path, monkeypatch):
    (tmp_path / "drawn.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    for cached in (client_process.load_dataset, client_process._client_process):
        cached.cache_clear()


@pytest.mark.usefixtures("_module")
@pytest.mark.parametrize("key", LINES)
def test_run_ends_before_round_1(tmp_path, key):
    np.random.seed(0)  # noqa: NPY002 - server and clients draw from this state in turn
    config = RunConfig(**VALUES[key], **KEYS, **{"run-dir": str(tmp_path / "runs")})
    with pytest.raises(ConfigError) as caught:
        run_here(config)
    assert f"error: {caught.value}".startswith(LINES[key])
