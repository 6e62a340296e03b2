"""A network with batch normalisation under every strategy, in one process."""

import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from tests.support.in_process import train
from tests.support.rounding import assert_same_change

PATH = "tests.support.models:NORMALISED"
BUFFERS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")


def models_of(strategy, **changes):
    """Return the models after each round, by name."""
    models = {}

    def keep(metrics, model):
        models[metrics.round] = {name: array.numpy().copy() for name, array in model.items()}

    train(on_round_end=keep, task=PATH, strategy=strategy, **changes)
    return models


def test_buffers_are_the_mean_of_the_clients():
    """Without compression either way, the compressed strategy is FedAvg, buffers included."""
    arguments = "uplink = 'float32', downlink = 'float32', weights = 'samples'"
    ours = models_of("compressed", strategy_args=arguments, num_server_rounds=3)
    theirs = models_of("fedavg", num_server_rounds=3)
    assert_same_change(*(models.values() for models in (ours[3], theirs[3], theirs[0])))
    np.testing.assert_array_equal(ours[3][BUFFERS[2]], theirs[3][BUFFERS[2]])


def far_away(reply):
    """Move a reply's running mean by 1,000 in each of four channels: by 2,000 together."""
    record = "buffers" if "buffers" in reply.content else "arrays"
    arrays = reply.content[record]
    mean = Array(arrays[BUFFERS[0]].numpy() + np.float32(1000))
    reply.content[record] = ArrayRecord({**arrays, BUFFERS[0]: mean})
    return reply


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd", "stc"])
def test_norm_of_an_update_has_the_buffers_change_and_not_their_values(strategy):
    changes = {
        "task": PATH, "strategy": strategy, "num_server_rounds": 14, "max_update_norm": 10.0,
        "learning_rate": 0.01, "batch_size": 100,
    }  # fmt: skip
    _, honest = train(**changes)
    assert not any(metrics.rejected for metrics in honest.history)
    assert honest.model[BUFFERS[2]].numpy() > 10, "the counter alone is above the bound"
    _, result = train(tamper=dict.fromkeys(range(5), far_away), **changes)
    reasons = [reason for metrics in result.history for reason in metrics.rejected.values()]
    assert len(reasons) > 10
    assert all(re.search("norm is (1999|2000)", reason) for reason in reasons)
