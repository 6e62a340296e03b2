"""Metrics of batches, put together, against scikit-learn's and torchmetrics' of all examples."""

import dataclasses
import math

import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch.nn import functional
from torchmetrics.classification import (
    MulticlassAUROC,
    MulticlassF1Score,
    MulticlassJaccardIndex,
    MultilabelF1Score,
)
from torchmetrics.regression import MeanAbsoluteError, PearsonCorrCoef, R2Score, SpearmanCorrCoef
from torchmetrics.text import Perplexity

from tasks.checking import TaskError
from tasks.metrics import accuracy, make_metric
from tasks.objective import Objective
from tests.support import networks

GENERATOR = torch.Generator().manual_seed(0)
N = 103


def drawn(*shape):
    return torch.randn(shape, generator=GENERATOR)


def classes(number, *shape):
    return torch.randint(0, number, shape, generator=GENERATOR)


LOGITS, CLASSES = drawn(N, 4), classes(4, N)
SEVERAL = drawn(N, 3), classes(2, N, 3)
NUMBERS = drawn(N)
NOISY = NUMBERS + 0.3 * drawn(N)


def sklearn_f1(logits, targets):
    return sklearn_metrics.f1_score(targets, logits.argmax(1), average="macro")


def sklearn_auc(logits, targets):
    return sklearn_metrics.roc_auc_score(targets, logits.softmax(1), multi_class="ovr")


def sklearn_multilabel(logits, targets):
    return sklearn_metrics.f1_score(targets, logits > 0, average="macro")


def sklearn_iou(logits, targets):
    predicted = logits.argmax(1).flatten()
    return sklearn_metrics.jaccard_score(targets.flatten(), predicted, average="macro")


def with_perplexity(logits, targets):
    return math.exp(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))


@pytest.mark.parametrize(
    ("metric", "outputs", "targets", "whole"),
    [
        (accuracy, LOGITS, CLASSES, lambda o, t: (o.argmax(1) == t).float().mean()),
        (
            lambda o, t: ((o - t).abs().sum(), len(t)), NUMBERS, NOISY,
            lambda o, t: sklearn_metrics.mean_absolute_error(t, o),
        ),
        (MulticlassF1Score(4, average="macro"), LOGITS, CLASSES, sklearn_f1),
        (MulticlassAUROC(4), LOGITS, CLASSES, sklearn_auc),
        (MultilabelF1Score(3), *SEVERAL, sklearn_multilabel),
        (MulticlassJaccardIndex(3), drawn(N, 3, 5, 5), classes(3, N, 5, 5), sklearn_iou),
        (MeanAbsoluteError(), NUMBERS, NOISY, lambda o, t: (o - t).abs().mean()),
        (R2Score(), NUMBERS, NOISY, lambda o, t: sklearn_metrics.r2_score(t, o)),
        (PearsonCorrCoef(), NUMBERS, NOISY, lambda o, t: torch.stack([o, t]).corrcoef()[0, 1]),
        (SpearmanCorrCoef(), NUMBERS, NOISY, None),
        (Perplexity(), drawn(N, 7, 5), classes(5, N, 7), with_perplexity),
    ],
)  # fmt: skip
def test_metric_of_batches_is_that_of_all_examples(metric, outputs, targets, whole):
    found = make_metric("metric", metric)
    states = [
        found.of_batch(outputs[start : start + 20], targets[start : start + 20])
        for start in range(0, N, 20)
    ]
    if whole is None:
        metric.update(outputs, targets)
        expected = metric.compute()
    else:
        expected = whole(outputs, targets)
    assert found.value(states) == pytest.approx(float(expected), rel=1e-6, abs=1e-6)
    assert found.value(states) == found.value(states), "it keeps nothing"


def test_metric_that_is_several_numbers_is_refused():
    metric = make_metric("f1", MulticlassF1Score(4, average=None))
    with pytest.raises(ValueError, match=r"gives \(4,\), not one number: choose an average"):
        metric.value([metric.of_batch(LOGITS, CLASSES)])


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (0.5, "f1 is float: give a function of"),
        (MulticlassF1Score, "f1 is the class MulticlassF1Score: give a function of"),
    ],
)
def test_invalid_metric_is_refused(given, error):
    with pytest.raises(TypeError, match=error):
        make_metric("f1", given)


def ratio(outputs, targets):
    return outputs.sum(), len(targets)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "max accuracy"),
        ({"metrics": {}}, "min loss"),
        ({"objective": "loss"}, "min loss"),
        ({"metrics": {"mae": MeanAbsoluteError()}}, "min mae"),
        ({"metrics": {"f1": MulticlassF1Score(4), "mae": MeanAbsoluteError()}}, "max f1"),
        ({"metrics": {"own": ratio}, "objective": "max own"}, "max own"),
    ],
)
def test_objective_is_the_first_metric_in_its_direction(changes, expected):
    task = dataclasses.replace(networks.MLP, **changes)
    assert str(task.default_objective()) == expected
    assert Objective.parse(expected) == task.default_objective()


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"metrics": {"own": ratio}}, "objective: own does not say whether more of it is better:"),
        ({"objective": "f1"}, "objective: is 'f1', which is no metric; there are: accuracy, loss"),
        ({"objective": "best loss"}, "objective: is 'best loss': give 'max' or 'min' and a metric"),
    ],
)
def test_objective_that_is_not_clear_is_refused(changes, error):
    with pytest.raises(TaskError, match=error):
        dataclasses.replace(networks.MLP, **changes).default_objective()


def test_best_value_is_the_least_where_less_is_better_and_never_nan():
    curve = [(0, math.nan), (1, 3.0), (2, 1.0), (3, 1.0), (4, 2.0)]
    assert Objective("mae", higher_is_better=False).best_point(curve) == (2, 1.0)
    assert Objective("r2").best_point(curve) == (1, 3.0)
    assert Objective("r2").best_point(curve[:1]) is None
