"""Hostile devices besides an honest one, over TLS: rejected, they change no bit of the model."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedavg_app.config import RunConfig
from tests.support import hostile
from tests.support.deployment import Deployment
from tests.support.in_process import run_here

# A run that loses more than half of its clients to the end fails.
NUM_HONEST, NUM_HOSTILE = 2, 2
NUM_CLIENTS = NUM_HONEST + NUM_HOSTILE

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile")
    shutil.copy(hostile.__file__, path)
    (path / "sitecustomize.py").write_text("import hostile\n\nhostile.install()\n")
    with Deployment(tmp_path_factory.mktemp("deployment"), NUM_HONEST) as started:
        honest = started.environment
        paths = [str(path), honest.get("PYTHONPATH", "")]
        started.environment = {**honest, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        for number in range(NUM_HONEST, NUM_CLIENTS):
            started.add_node(number)
        started.environment = honest
        started.wait_for(lambda: started.online() == NUM_CLIENTS)
        yield started


def train_without_hostile_replies(run_dir, **changes):
    """Return the model of the same run in one process, where the hostile replies are rejected."""
    config = RunConfig(
        **{
            "task": "mnist-logistic", "data-source": "embedded", "num-clients": NUM_CLIENTS,
            "fraction-train": 1.0, "run-dir": str(run_dir), **changes,
        }
    )  # fmt: skip

    def without_examples(reply):
        record = "update" if "update" in reply.content else "metrics"
        reply.content[record]["num-examples"] = 0
        return reply

    tamper = dict.fromkeys(range(NUM_HONEST, NUM_CLIENTS), without_examples)
    return run_here(config, tamper=tamper).model


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
    lines = (folder / "history.jsonl").read_text().splitlines()
    rejected = [json.loads(line)["rejected"] for line in lines[1:]]
    assert [len(reasons) for reasons in rejected] == [NUM_HOSTILE] * num_rounds
    assert len({node for reasons in rejected for node in reasons}) == NUM_HOSTILE
    for number, (attack, expected) in enumerate(attacks):
        reasons = rejected[number // NUM_HOSTILE].values()
        assert any(expected in reason for reason in reasons), (attack.__name__, list(reasons))
        assert not any("\n" in reason for reason in reasons)
    model = load_file(folder / "model.safetensors")
    for name, array in train_without_hostile_replies(tmp_path / "expected", **changes).items():
        assert np.array_equal(model[name], array.numpy()), name
