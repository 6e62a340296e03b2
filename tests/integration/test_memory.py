"""What a round leaves in memory: nothing as large as a model waits for the garbage collector."""

import gc

import numpy as np
import pytest
from flwr.app import Array

import strategies
from tests.support.in_process import train

LARGE = 10_000  # bytes; the model has 31,400


def size(found):
    return len(found.data) if isinstance(found, Array) else getattr(found, "nbytes", 0)


@pytest.fixture
def _no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("strategy", strategies.names())
def test_models_of_past_rounds_are_freed_without_the_collector(strategy):
    """With cycles, each round of a model of 400 MB took 800 MB more."""
    left = []

    def look(metrics, model):
        if metrics.round == 3:
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            kinds = Array | np.ndarray
            left.extend(each for each in gc.garbage if isinstance(each, kinds))

    train(
        strategy=strategy, num_clients=2, fraction_train=1.0, num_server_rounds=3, local_steps=1,
        on_round_end=look,
    )  # fmt: skip
    assert [type(found) for found in left if size(found) > LARGE] == []
