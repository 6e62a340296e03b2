import numpy as np
import torch

from tasks.seeds import integer, stream, torch_stream


def test_streams_do_not_depend_on_who_asks_first():
    first = stream(1, "batches", 3, 7).random(4)
    stream(1, "batches", 3, 8).random(100)
    assert np.array_equal(stream(1, "batches", 3, 7).random(4), first)


def test_every_step_of_the_path_counts():
    paths = [(1, "a"), (2, "a"), (1, "b"), (1, "a", 1), (1, "a", 2), (1, "a", 0, 1), (1, "a", 1, 1)]
    assert len({integer(*path) for path in paths}) == len(paths)


def test_values_are_pinned():
    """Other values here would silently change every result that a seed stands for."""
    assert integer(1, "model") == PINNED_INTEGER
    assert stream(1, "train", 1).choice(100, 5, replace=False).tolist() == PINNED_CHOICE
    order = torch.randperm(8, generator=torch_stream(1, "batches", 0, 1))
    assert order.tolist() == PINNED_ORDER


PINNED_INTEGER = 7838490221522719739
PINNED_CHOICE = [14, 83, 37, 63, 24]
PINNED_ORDER = [5, 4, 1, 3, 7, 0, 6, 2]
