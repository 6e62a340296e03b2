"""Flower's own strategies in whole runs: which make no model, or take samples of their own."""

import pytest
from flwr.serverapp import strategy as flower

from fedavg_app.errors import NoRepliesError
from tests.support.in_process import train_seven as train

pytestmark = pytest.mark.slow

FLOWERS = "flwr.serverapp.strategy"


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("Bulyan", "num-malicious-nodes = 2", "the strategy made no model of the replies"),
        ("FedAdam", "eta = nan", "the model that FedAdam made of the replies is not finite"),
    ],
)
def test_strategy_that_never_makes_a_model_ends_the_run(tmp_path, name, arguments, reason):
    with pytest.raises(NoRepliesError, match=f"no usable reply in 3 rounds in a row: {reason}"):
        train(tmp_path, f"{FLOWERS}:{name}", arguments, rounds=4)


class WantsMore(flower.FedAvg):
    """A strategy that takes half of what it sees, and waits for more nodes than a cohort has."""

    def __init__(self) -> None:
        super().__init__(fraction_train=0.5, min_available_nodes=100)


def test_strategy_with_a_sample_of_its_own_takes_the_whole_cohort(tmp_path):
    result = train(tmp_path, f"{__name__}:WantsMore")
    assert result.history[-1].participants == 7
