import dataclasses

import torch

from tasks.training.examples import Examples


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
