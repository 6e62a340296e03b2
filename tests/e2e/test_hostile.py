"""A hostile device among honest ones, over TLS: it is refused, and changes no bit of the model."""

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

HONEST = 2

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile")
    shutil.copy(hostile.__file__, path)
    (path / "sitecustomize.py").write_text("import hostile\n\nhostile.install()\n")
    with Deployment(tmp_path_factory.mktemp("deployment"), HONEST) as found:
        honest = found.environment
        found.environment = {**honest, "PYTHONPATH": str(path)}
        found.add_node(HONEST)
        found.environment = honest
        found.wait_for(lambda: found.online() == HONEST + 1)
        yield found


def without_it(runs, **changes):
    """Return the model of the same run in one process, where the third has nothing to say."""
    values = {
        "task": "mnist-logistic", "data-source": "embedded", "num-clients": HONEST + 1,
        "fraction-train": 1.0, "run-dir": str(runs), **changes,
    }  # fmt: skip
    config = {**RunConfig().model_dump(by_alias=True), **values}

    def empty(reply):
        reply.content["metrics"]["num-examples"] = 0
        return reply

    return run(LocalGrid(config, HONEST + 1, {HONEST: empty}), config).arrays


@pytest.mark.parametrize(
    ("changes", "attacks"),
    [
        ({"strategy": "fedavg"}, hostile.ON_MODELS),
        ({"strategy": "stc", "local-steps": 1, "batch-size": 20}, hostile.ON_UPDATES),
    ],
    ids=["fedavg", "stc"],
)
def test_every_attack_is_refused_by_its_reason(deployment, tmp_path, changes, attacks):
    changes = {**changes, "seed": 5, "num-server-rounds": len(attacks)}
    trained = deployment.train(tmp_path / "deployed", seconds=600, **changes)
    lines = (trained / "history.jsonl").read_text().splitlines()
    rejected = [json.loads(line)["rejected"] for line in lines[1:]]
    assert [len(refused) for refused in rejected] == [1] * len(attacks)
    assert len({node for refused in rejected for node in refused}) == 1
    for refused, (attack, reason) in zip(rejected, attacks, strict=True):
        (said,) = refused.values()
        assert reason in said, attack.__name__
        assert "\n" not in said
    found = load_file(trained / "model.safetensors")
    for name, array in without_it(tmp_path / "alone", **changes).items():
        assert np.array_equal(found[name], array.numpy()), name
