"""Hostile devices beside an honest one, over TLS: refused, they change no bit of the model."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedavg_app.config import RunConfig
from fedavg_app.server_app import run
from tests.e2e import hostile
from tests.e2e.deployment import Deployment
from tests.fedavg_app.local_grid import LocalGrid

HONEST, HOSTILE = 1, 2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile")
    shutil.copy(hostile.__file__, path)
    (path / "sitecustomize.py").write_text("import hostile\n\nhostile.install()\n")
    with Deployment(tmp_path_factory.mktemp("deployment"), HONEST) as found:
        honest = found.environment
        found.environment = {**honest, "PYTHONPATH": str(path)}
        for number in range(HONEST, HONEST + HOSTILE):
            found.add_node(number)
        found.environment = honest
        found.wait_for(lambda: found.online() == HONEST + HOSTILE)
        yield found


def without_them(runs, **changes):
    """Return the model of the same run in one process, where the hostile have nothing to say."""
    values = {
        "task": "mnist-logistic", "data-source": "embedded", "num-clients": HONEST + HOSTILE,
        "fraction-train": 1.0, "run-dir": str(runs), **changes,
    }  # fmt: skip
    config = {**RunConfig().model_dump(by_alias=True), **values}

    def empty(reply):
        reply.content["metrics"]["num-examples"] = 0
        return reply

    silenced = dict.fromkeys(range(HONEST, HONEST + HOSTILE), empty)
    return run(LocalGrid(config, HONEST + HOSTILE, silenced), config).arrays


@pytest.mark.parametrize(
    ("changes", "attacks"),
    [
        ({"strategy": "fedavg"}, hostile.ON_MODELS),
        ({"strategy": "stc", "local-steps": 1, "batch-size": 20}, hostile.ON_UPDATES),
    ],
    ids=["fedavg", "stc"],
)
def test_every_attack_is_refused_by_its_reason(deployment, tmp_path, changes, attacks):
    rounds = len(attacks) // HOSTILE
    changes = {**changes, "seed": 5, "num-server-rounds": rounds}
    trained = deployment.train(tmp_path / "deployed", seconds=600, **changes)
    lines = (trained / "history.jsonl").read_text().splitlines()
    rejected = [json.loads(line)["rejected"] for line in lines[1:]]
    assert [len(refused) for refused in rejected] == [HOSTILE] * rounds
    assert len({node for refused in rejected for node in refused}) == HOSTILE
    for number, (attack, reason) in enumerate(attacks):
        said = rejected[number // HOSTILE].values()
        assert any(reason in text for text in said), (attack.__name__, list(said))
        assert not any("\n" in text for text in said)
    found = load_file(trained / "model.safetensors")
    for name, array in without_them(tmp_path / "alone", **changes).items():
        assert np.array_equal(found[name], array.numpy()), name
