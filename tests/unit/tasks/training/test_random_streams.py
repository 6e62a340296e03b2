import torch

from tasks.training.random_streams import derive_seed, numpy_generator, torch_generator


def test_values_of_streams_are_pinned():
    """Other values here would silently change the result of every seed."""
    assert derive_seed(1, "model") == PINNED_SEED
    assert numpy_generator(1, "train", 1).choice(100, 5, replace=False).tolist() == PINNED_CHOICE
    order = torch.randperm(8, generator=torch_generator(1, "batches", 0, 1))
    assert order.tolist() == PINNED_ORDER


PINNED_SEED = 7838490221522719739
PINNED_CHOICE = [14, 83, 37, 63, 24]
PINNED_ORDER = [5, 4, 1, 3, 7, 0, 6, 2]
