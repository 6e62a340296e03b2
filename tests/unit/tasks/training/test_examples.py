import dataclasses

import numpy as np
import torch

from tasks.data.dataset import Split
from tasks.mnist import MNIST_LOGISTIC
from tasks.training.examples import Examples

RNG = np.random.default_rng(0)
EXAMPLES = Examples(
    torch.from_numpy(RNG.normal(size=(23, 1, 28, 28)).astype(np.float32)),
    torch.from_numpy(RNG.integers(0, 10, 23)),
)


def pairs(examples):
    return {
        (x.sum().item(), y.item())
        for inputs, targets in examples.batches(1)
        for x, y in zip(inputs, targets, strict=True)
    }


def test_batches_have_the_given_size_and_size_zero_is_one_batch():
    assert [len(y) for _, y in EXAMPLES.batches(10)] == [10, 10, 3]
    assert [len(y) for _, y in EXAMPLES.batches(0)] == [23]
    assert [len(y) for _, y in EXAMPLES.batches(100)] == [23]


def test_shuffled_examples_are_the_same_pairs_in_another_order():
    shuffled = EXAMPLES.shuffled(torch.Generator().manual_seed(0)).prepared()
    assert pairs(shuffled) == pairs(EXAMPLES)
    assert not torch.equal(shuffled.targets, EXAMPLES.targets)


def test_shuffling_with_a_limit_returns_first_of_all_shuffled_examples():
    whole = EXAMPLES.shuffled(torch.Generator().manual_seed(0)).prepared()
    few = EXAMPLES.shuffled(torch.Generator().manual_seed(0), 7).prepared()
    assert len(few) == 7
    assert torch.equal(few.inputs, whole.inputs[:7])
    assert torch.equal(few.targets, whole.targets[:7])
    assert len(EXAMPLES.shuffled(torch.Generator(), 1000)) == 23


def test_stored_examples_are_prepared_on_use_and_not_modified():
    def prepare(inputs):
        prepared.append(len(inputs))
        return inputs.mul_(2)

    prepared = []
    stored = Examples(torch.arange(6.0), torch.arange(6), prepare)
    some = dataclasses.replace(stored, rows=torch.tensor([5, 1, 3]))
    assert (len(stored), len(some), prepared) == (6, 3, [])
    assert [(x.tolist(), y.tolist()) for x, y in some.batches(2)] == [
        ([10.0, 2.0], [5, 1]), ([6.0], [3]),
    ]  # fmt: skip
    assert [x.tolist() for x, _ in stored.batches(0)] == [[0, 2, 4, 6, 8, 10]]
    assert prepared == [2, 1, 6]
    first = some.shuffled(torch.Generator().manual_seed(0), limit=1).prepared()
    assert first.inputs.item() == 2 * first.targets.item()
    assert stored.inputs.tolist() == [0, 1, 2, 3, 4, 5]


def test_stored_training_examples_are_augmented_and_test_examples_are_prepared():
    task = dataclasses.replace(MNIST_LOGISTIC, prepare=lambda x: x + 1, augment=lambda x: x + 2)
    split = Split(np.zeros((3, 4), np.float32), np.arange(3))
    for training, expected in ((True, 2), (False, 1)):
        examples = Examples.stored(task, split, torch.device("cpu"), training=training)
        assert examples.prepared().inputs.unique().tolist() == [expected]
    plain = dataclasses.replace(task, augment=None)
    examples = Examples.stored(plain, split, torch.device("cpu"), training=True)
    assert examples.prepared().inputs.unique().tolist() == [1]


def test_predictions_are_targets_that_are_not_negative():
    targets = torch.tensor([[1, 8, -100], [0, -100, -100], [2, 2, 2]])
    examples = Examples(torch.zeros(3), targets)
    assert examples.num_predictions() == 6
    assert dataclasses.replace(examples, rows=torch.tensor([1, 0])).num_predictions() == 3


def test_batches_of_images_are_in_channels_last_layout():
    images = torch.randn(7, 3, 5, 5)
    examples = Examples(images, EXAMPLES.targets[:7])
    for inputs, _ in (examples.slice(1, 4), examples.prepared().slice(1, 4)):
        assert inputs.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(inputs, images[1:4])
