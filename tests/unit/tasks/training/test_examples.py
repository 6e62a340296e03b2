"""Examples, their evaluation, and the streams of random numbers."""

import dataclasses

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tasks.data.dataset import DataOptions
from tasks.mnist import MNIST_LOGISTIC
from tasks.model_arrays import read_arrays
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient
from tasks.training.random_streams import (
    derive_seed,
    numpy_generator,
    seeded,
    torch_generator,
)
from tests.support import networks
from tests.support.task_clients import fit


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


def test_model_is_evaluated_without_dropout():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 10)).train()
    examples = Examples(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
    client = TaskClient(MNIST_LOGISTIC, lambda: model, None, examples)
    arrays = read_arrays(model, client.arrays.sent)
    assert len({client.test(arrays, 0)[0].loss for _ in range(5)}) == 1


def test_random_transforms_are_drawn_by_seed_client_and_round():
    """As torch trains on them, where the seed is set by hand."""
    task = networks.TRANSFORMED
    data, model, by_hand = task.dataset(DataOptions()), task.initial_model(0), task.initial_model(0)
    stored = task.examples(data.train, torch.device("cpu"), training=True)
    client = TaskClient(
        task, lambda: model, dataclasses.replace(stored, rows=torch.arange(12)), partition=3
    )
    config = {"learning-rate": 0.1, "batch-size": 4, "local-epochs": 2, "seed": 5}
    sent = [array.numpy().copy() for array in by_hand.state_dict().values()]
    found, _, _ = fit(client, sent, config | {"server-round": 2})
    order = torch.randperm(12, generator=torch_generator(5, "batches", 3, 2)).tolist()
    optimizer = torch.optim.SGD(by_hand.parameters(), 0.1)
    with seeded(derive_seed(5, "local", 3, 2), torch.device("cpu")):
        for start in (0, 4, 8, 0, 4, 8):
            images, targets = zip(
                *[data.train.inputs[n] for n in order[start : start + 4]], strict=True
            )
            optimizer.zero_grad()
            loss = functional.cross_entropy(by_hand(torch.stack(images)), torch.tensor(targets))
            loss.backward()
            optimizer.step()
    for array, expected in zip(found, by_hand.state_dict().values(), strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-6)
    again, _, _ = fit(client, sent, config | {"server-round": 2})
    other, _, _ = fit(client, sent, config | {"server-round": 3})
    assert all(map(np.array_equal, found, again))
    assert not any(map(np.array_equal, found, other))


def test_values_of_streams_are_pinned():
    """Other values here would silently change the result of every seed."""
    assert derive_seed(1, "model") == 7838490221522719739
    choice = numpy_generator(1, "train", 1).choice(100, 5, replace=False)
    assert choice.tolist() == [14, 83, 37, 63, 24]
    order = torch.randperm(8, generator=torch_generator(1, "batches", 0, 1))
    assert order.tolist() == [5, 4, 1, 3, 7, 0, 6, 2]
