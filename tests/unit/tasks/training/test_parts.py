"""Which batches are cut: only where the gradient of the whole is that of the parts."""

import weakref
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from tasks.training.layers import looks_at_one_example
from tasks.training.parts import loss_count, part_count
from tests.support import networks

WEIGHTS = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("loss", "floats"),
    [
        (functional.cross_entropy, False), (nn.CrossEntropyLoss(), False),
        (partial(functional.cross_entropy, label_smoothing=0.1), False),
        (nn.NLLLoss(), False), (functional.mse_loss, True), (nn.MSELoss(), True),
        (functional.binary_cross_entropy_with_logits, True), (nn.BCEWithLogitsLoss(), True),
        (nn.HuberLoss(), True),
    ],
)  # fmt: skip
def test_the_mean_of_a_known_loss_is_that_of_its_parts(loss, floats):
    """Two predictions are left out where the targets are classes."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(8, 4, generator=generator, dtype=torch.float64).log_softmax(1)
    targets = torch.rand(8, 4, generator=generator, dtype=torch.float64)
    if not floats:
        targets = torch.tensor([0, 1, -100, 2, 3, -100, 0, 1])
    count = loss_count(loss)
    whole = int(count(8, targets))
    shares = [int(count(len(part), part)) / whole for part in targets.split(3)]
    parts = zip(outputs.split(3), targets.split(3), shares, strict=True)
    mean = sum(loss(outputs, targets) * share for outputs, targets, share in parts)
    assert float(mean) == pytest.approx(float(loss(outputs, targets)), rel=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        networks.weighted_loss, lambda outputs, targets: functional.cross_entropy(outputs, targets),
        nn.CrossEntropyLoss(weight=WEIGHTS), nn.CrossEntropyLoss(ignore_index=0),
        nn.CrossEntropyLoss(reduction="sum"), nn.BCEWithLogitsLoss(weight=WEIGHTS),
        partial(functional.cross_entropy, weight=WEIGHTS), nn.CTCLoss(),
        functional.cosine_embedding_loss, type("Own", (nn.CrossEntropyLoss,), {})(),
    ],
)  # fmt: skip
def test_other_losses_see_the_whole_batch(loss):
    assert loss_count(loss) is None


@pytest.mark.parametrize("name", ["MLP", "GROUP_NORM", "INSTANCE_NORM"])
def test_networks_of_known_layers_are_cut(name):
    task = getattr(networks, name)
    assert part_count(task, task.model()) is not None


@pytest.mark.parametrize(
    "model",
    [
        networks.convolutions(nn.BatchNorm2d), networks.convolutions(nn.SyncBatchNorm),
        networks.OWN_NORM.model(), networks.Tied(), networks.masked(),
        nn.Sequential(nn.Flatten(0)), nn.Sequential(nn.Unflatten(0, (2, 2))),
        nn.Embedding(3, 2, max_norm=1.0), nn.InstanceNorm1d(2, track_running_stats=True),
        nn.LSTM(2, 2), nn.MultiheadAttention(4, 1), nn.Sequential(nn.Softmax(0)),
    ],
)  # fmt: skip
def test_other_networks_see_the_whole_batch(model):
    assert not looks_at_one_example(model)


def test_a_task_may_say_that_its_batches_can_be_cut():
    model = networks.Tied()
    for said in (True, False):
        task = networks.task("tied", networks.Tied, in_parts=said, loss=networks.weighted_loss)
        assert (part_count(task, model) is not None) == said


def test_cached_answers_are_freed_with_the_network():
    model = nn.Linear(2, 2)
    assert looks_at_one_example(model)
    seen = weakref.ref(model)
    del model
    assert seen() is None
