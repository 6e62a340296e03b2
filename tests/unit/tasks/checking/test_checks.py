"""Each fault is found, and named with its attribute; ordinary networks have none."""

import re

import pytest

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import prepare
from tasks.checking.all_checks import all_checks
from tasks.data.dataset import DataOptions
from tests.support import faulty_tasks, networks
from tests.support.faulty_tasks import FOUND

OPTIONS = DataOptions("embedded")
# What only `fedavg check` looks for: it takes two loads, or trainings.
SLOW = ("UNSEEDED", "GLOBAL", "NO_SUM")


def findings(task):
    return list(all_checks(task, task.dataset(OPTIONS), OPTIONS, 1))


@pytest.mark.parametrize("name", FOUND)
def test_fault_is_found(name):
    kind, text = FOUND[name]
    found = findings(getattr(faulty_tasks, name))
    assert [one for one in found if one.kind == kind and str(one).startswith(text)], found
    assert {one.kind for one in found} <= {kind, "ok", "note"}


@pytest.mark.parametrize("name", [name for name in FOUND if name not in SLOW])
def test_quick_checks_find_it_before_a_training(name, caplog):
    kind, text = FOUND[name]
    config = RunConfig(task=f"tests.support.faulty_tasks:{name}", num_clients=2)
    if kind == "warning":
        prepare(config)
        assert text in caplog.text
        return
    text = text.partition(":")[2] if name == "LAZY" else f" {text}"
    with pytest.raises(ConfigError, match=re.escape(f"task = '{config.task}':{text}")):
        prepare(config)


@pytest.mark.parametrize("name", networks.NAMES)
def test_ordinary_networks_have_no_fault(name):
    found = findings(getattr(networks, name))
    assert {one.kind for one in found} <= {"ok", "note"}, found


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("MASKED", "note", "model: hooks on 1"),
        ("TIED_DATA", "ok", "aliases 1; outer.weight is inner.weight"),
        ("OWN_NORM", "warning", "an example's output in a test depends on the others of its batch"),
        ("TORCH_NOISE", "note", "two tests of one batch give two outputs"),
        ("MOVING", "warning", "a training pass changes 'mean', not in the state dict"),
        ("LAZY", "warning", "a training pass changes 'mean', not in the state dict"),
        ("STATEFUL", "warning", "a training pass changes 'hidden', 'seen', not in the state dict"),
        ("THAWING", "error", "array 'body.weight' is trained now"),
        ("FREEZING", "error", "array 'body.weight' is not trained any more"),
        ("WEIGHTED", "note", "large batches stay whole"),
        ("TIED", "note", "large batches stay whole; with in_parts=True, if no layer looks"),
        ("MLP", "ok", "large batches are cut"),
    ],
)
def test_what_is_special_is_said(name, kind, text):
    found = findings(getattr(networks, name))
    assert [one for one in found if one.kind == kind and text in str(one)], found
