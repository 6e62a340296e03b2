"""Hostile devices besides an honest one, over TLS: rejected, they change no bit of the model."""

import pytest

from tests.support import hostile
from tests.support.deployment import Deployment
from tests.support.in_process import model_without
from tests.support.run_folders import assert_model, read_history

# A run that loses more than half of its clients to the end fails.
NUM_HONEST, NUM_HOSTILE = 2, 2
NUM_CLIENTS = NUM_HONEST + NUM_HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    with Deployment(tmp_path_factory.mktemp("deployment"), NUM_HONEST) as started:
        for number in range(NUM_HONEST, NUM_CLIENTS):
            started.add_hostile_node(number, hostile)
        started.wait_for(lambda: started.online() == NUM_CLIENTS)
        yield started


@pytest.mark.parametrize(
    ("changes", "attacks"),
    [
        ({"strategy": "fedavg"}, hostile.ON_MODELS),
        ({"strategy": "stc", "local-steps": 1, "batch-size": 20}, hostile.ON_UPDATES),
    ],
    ids=["fedavg", "stc"],
)
def test_every_attack_is_rejected_with_its_reason(deployment, tmp_path, changes, attacks):
    num_rounds = len(attacks) // NUM_HOSTILE
    changes = {**changes, "seed": 5, "num-server-rounds": num_rounds, "num-clients": NUM_CLIENTS}
    folder = deployment.train(tmp_path / "deployed", seconds=600, **changes)
    rejected = [record["rejected"] for record in read_history(folder)[1:]]
    assert [len(reasons) for reasons in rejected] == [NUM_HOSTILE] * num_rounds
    assert len({node for reasons in rejected for node in reasons}) == NUM_HOSTILE
    for number, (attack, expected) in enumerate(attacks):
        reasons = rejected[number // NUM_HOSTILE].values()
        assert any(expected in reason for reason in reasons), (attack.__name__, list(reasons))
        assert not any("\n" in reason for reason in reasons)
    assert_model(folder, model_without(range(NUM_HONEST, NUM_CLIENTS), tmp_path, **changes))
