import dataclasses

import pytest
from torch import nn

import tasks
from tasks.mnist import MNIST_LOGISTIC
from tasks.vectorised_check import check_vectorised
from tests.support.made_up_examples import noise
from tests.unit.tasks.test_vectorised import SUPPORTED

REFUSED = {
    "fashion-lstm": "has no rule for aten::",
    "shakespeare-lstm": "depends on the values of its inputs",
    "yelp-stars": "has no rule for aten::_embedding_bag",
}


def with_layer(layer):
    return dataclasses.replace(
        MNIST_LOGISTIC, model=lambda: nn.Sequential(nn.Flatten(), layer(), nn.Linear(784, 10))
    )


def test_every_task_is_supported_or_refused():
    assert {*SUPPORTED, *REFUSED} == set(tasks.names())


@pytest.mark.parametrize("name", SUPPORTED)
@pytest.mark.parametrize("count", [100, 2])
def test_supported_task_passes_the_check_whatever_the_number_of_examples(name, count):
    task = tasks.load(name)
    check_vectorised(task, noise(task, count))


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_task_that_vmap_cannot_do_is_refused_in_one_line(name, reason):
    task = tasks.load(name)
    with pytest.raises(ValueError, match=reason) as raised:
        check_vectorised(task, noise(task, 20))
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda: nn.Dropout(0.5), "draw random numbers"),
        (lambda: nn.BatchNorm1d(784), "examples of a batch"),
    ],
    ids=["dropout", "batch normalisation"],
)
def test_layer_that_would_give_other_results_is_refused(layer, reason):
    with pytest.raises(ValueError, match=reason):
        check_vectorised(with_layer(layer), noise(MNIST_LOGISTIC, 20))


def test_layer_normalisation_is_supported():
    check_vectorised(with_layer(lambda: nn.LayerNorm(784)), noise(MNIST_LOGISTIC, 20))


def test_loss_that_counts_ignored_targets_is_refused():
    def loss(logits, targets):
        return nn.functional.cross_entropy(logits, targets.clamp_min(0))

    with pytest.raises(ValueError, match="gets another result"):
        check_vectorised(dataclasses.replace(MNIST_LOGISTIC, loss=loss), noise(MNIST_LOGISTIC, 20))
