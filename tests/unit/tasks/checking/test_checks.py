"""Each fault is found, and named with its attribute; ordinary networks have none."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import prepare
from tasks.checking import training
from tasks.checking.all_checks import all_checks
from tasks.data.dataset import DataError, DataOptions, Dataset, Split
from tasks.model_arrays import overlapping
from tests.support import faulty_tasks, networks
from tests.support.faulty_tasks import FOUND

OPTIONS = DataOptions("embedded")
# One of each check that is made before every training.
QUICK = ("RATE", "NAN", "NOISY", "SUM", "SOFTMAX", "BROADCAST", "NORM_IN_PARTS", "CLOSURE",
         "TRANSPOSED")  # fmt: skip


def findings(task):
    return list(all_checks(task, task.dataset(OPTIONS), 1))


@pytest.mark.parametrize("name", FOUND)
def test_fault_is_found(name):
    kind, text = FOUND[name]
    found = findings(getattr(faulty_tasks, name))
    assert [
        finding for finding in found if finding.kind == kind and str(finding).startswith(text)
    ], found
    assert {finding.kind for finding in found} <= {kind, "ok", "note"}


@pytest.mark.parametrize("name", QUICK)
def test_quick_checks_find_it_before_a_training(name, caplog):
    kind, text = FOUND[name]
    config = RunConfig(task=f"tests.support.faulty_tasks:{name}", num_clients=2)
    if kind == "warning":
        prepare(config)
        assert text in caplog.text
        return
    with pytest.raises(ConfigError, match=re.escape(f"task = '{config.task}': {text}")):
        prepare(config)


@pytest.mark.parametrize("name", networks.NAMES)
def test_ordinary_networks_have_no_fault(name):
    found = findings(getattr(networks, name))
    assert {finding.kind for finding in found} <= {"ok", "note"}, found


def test_arrays_overlap_where_they_have_an_entry_in_common():
    rows = torch.zeros(4, 3)
    sparse = torch.eye(2).to_sparse()
    state = {"first": rows[:2], "last": rows[2:], "column": rows[:, 1], "a": sparse, "b": sparse}
    assert list(overlapping(state, list(state))) == [("first", "column"), ("last", "column")]


def test_logits_that_are_small_by_chance_are_no_fault():
    assert {finding.kind for finding in findings(faulty_tasks.SMALL)} <= {"ok", "note"}


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("TIED_DATA", "ok", "aliases 1; outer.weight is inner.weight"),
        ("OWN_NORM", "note", "in_parts: cannot be said: cutting a batch changes '0.weight' by"),
        ("THAWING", "error", "array 'body.weight' is trained now"),
        ("FREEZING", "error", "array 'body.weight' is no longer trained"),
        ("WEIGHTED", "note", "in_parts: cannot be said: cutting a batch changes '1.weight' by"),
        ("BATCH_NORM", "note", "in_parts: cannot be said: cutting a batch changes '0.weight' by"),
        ("TIED_DATA", "note", "in_parts: the same numbers as torch's own steps, "),
        ("MLP", "note", "times as fast: you may say in_parts=True"),
        ("TRANSFORMED", "ok", "every call gives the same examples, and the same model"),
    ],
)
def test_special_features_are_noted(name, kind, text, monkeypatch):
    monkeypatch.setattr(training, "GAIN", 0.0)  # whatever the machine's speed is
    found = findings(getattr(networks, name))
    assert [finding for finding in found if finding.kind == kind and text in str(finding)], found


@pytest.mark.parametrize("in_parts", [False, True])
def test_examples_without_a_prediction_are_no_fault(in_parts):
    """They are one whole part of the batch for which the loss is tried."""

    def load(options):
        data = networks.images(options)
        targets = np.full_like(data.train.targets, -100)
        targets[1:5] = data.train.targets[1:5]
        return dataclasses.replace(data, train=Split(data.train.inputs, targets))

    task = dataclasses.replace(networks.MLP, dataset=load, in_parts=in_parts)
    assert {finding.kind for finding in findings(task)} <= {"ok", "note"}


def test_masks_in_buffers_are_no_fault():
    """Neither bool nor infinite values can be subtracted."""

    def masked():
        model = networks.mlp()
        model.register_buffer("mask", torch.ones(4, dtype=torch.bool))
        model.register_buffer("bias", torch.full((4,), -torch.inf))
        return model

    found = findings(dataclasses.replace(networks.MLP, model=masked, in_parts=True))
    assert {finding.kind for finding in found} <= {"ok", "note"}, found
    assert any("in_parts: the same numbers" in str(finding) for finding in found), found


def test_one_training_example_is_enough():
    def load(options):
        data = networks.images(options)
        single = Split(data.train.inputs[:1], data.train.targets[:1])
        return dataclasses.replace(data, train=single)

    found = findings(dataclasses.replace(networks.MLP, dataset=load))
    assert {finding.kind for finding in found} <= {"ok", "note"}, found


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"targets": np.zeros(9, np.int64)},
            "inputs and targets have 10 and 9 examples: give as many",
        ),
        ({"targets": torch.zeros(10)}, "the targets are a Tensor: give a NumPy array"),
        ({"inputs": [1] * 10}, "the inputs are a list: give a NumPy array"),
        ({"targets": np.array(["a"] * 10)}, "the targets are <U1: give numbers"),
    ],
)
def test_data_of_another_kind_are_refused_where_they_are_made(change, text):
    part = Split(np.zeros((10, 2)), np.zeros(10, np.int64))
    with pytest.raises(DataError, match=text):
        Dataset(dataclasses.replace(part, **change), part, OPTIONS, "made up", "")


def test_validation_examples_are_checked_like_the_others():
    def load(options):
        data = networks.images(options)
        own = data.test.part(slice(20))
        return dataclasses.replace(data, validation=Split(own.inputs, own.targets - 50))

    (found,) = [
        each
        for each in findings(dataclasses.replace(networks.MLP, dataset=load))
        if each.kind == "error"
    ]
    assert "validation targets of -50, and a negative target is no prediction" in str(found)
