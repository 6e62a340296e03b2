import sys
from types import ModuleType

import numpy as np
import pytest

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning import partition
from tests.support.documents import ROOT, examples
from tests.support.labels import labelled_dataset

DATA = labelled_dataset(np.arange(60) % 3)


def split_by(monkeypatch, function, arguments=""):
    module = ModuleType("mine")
    module.split = function
    monkeypatch.setitem(sys.modules, "mine", module)
    config = RunConfig(partition="mine:split", partition_args=arguments, num_clients=3, seed=5)
    return partition(DATA, "train", config)


def test_function_gets_labels_clients_seed_and_arguments(monkeypatch):
    def split(labels, num_clients, seed, first=0):
        given.append((labels.tolist(), num_clients, seed, first))
        return [[first], [20, 21], np.array([40], np.uint8)]

    given = []
    parts = split_by(monkeypatch, split, "first = 7")
    assert given == [(DATA.train.targets.tolist(), 3, 5, 7)]
    assert [part.tolist() for part in parts] == [[7], [20, 21], [40]]
    assert {part.dtype for part in parts} == {np.dtype(np.int64)}


def test_function_of_the_page_splits_in_unequal_parts(monkeypatch):
    scope = {}
    exec(examples(ROOT / "docs" / "tasks.md")["quantity.py"], scope)
    for exponent in (0.5, 1):
        arguments = f"exponent = {exponent}"
        sizes = [len(part) for part in split_by(monkeypatch, scope["power_law"], arguments)]
        shares = np.arange(1.0, 4) ** -exponent
        assert sizes == (shares / shares.sum() * 60).astype(int).tolist()


@pytest.mark.parametrize(
    ("parts", "arguments", "problem"),
    [
        ([[0], [1]], "", "partition = '.*:.*<lambda>': 2 parts for 3 clients; return one array"),
        (None, "", "'NoneType' object is not iterable; return one array"),
        ([[0], [1], []], "", "a part is not a sequence of one index or more"),
        ([[0], [1], [0.5]], "", "a part is not a sequence of one index or more"),
        ([[0], [1], [60]], "", "an index is not from 0 to 59"),
        ([[0], [1], [1, 2]], "", "an example belongs to two clients"),
        ([[0], [1], [2]], "size = 3", "got an unexpected keyword argument 'size'"),
    ],
)
def test_invalid_partition_is_refused(monkeypatch, parts, arguments, problem):
    with pytest.raises(ConfigError, match=problem):
        split_by(monkeypatch, lambda labels, num_clients, seed: parts, arguments)


def test_what_splits_nothing_is_refused(monkeypatch):
    with pytest.raises(ConfigError, match="partition = 'mine:split': it is no function"):
        split_by(monkeypatch, 3)
