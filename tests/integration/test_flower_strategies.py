"""Flower's own strategies in whole runs: robust means under attack, and privacy wrappers.

tests/unit/strategies/test_flower_adapter.py shows that the adapter does not change their
results. The clipping, which is done at both ends, is compared with the published formula.
"""

import math

import numpy as np
import pytest
from flwr.app import Array
from flwr.serverapp import strategy as flower

import tasks
from fedavg_app.config import parse_config
from tests.support.in_process import run_here

CLIENTS = 7
MALICIOUS = 2
HERE = __name__
FLOWERS = "flwr.serverapp.strategy"
MODS = "flwr.clientapp.mod"
NORM = 0.05
# By round and client: what it sent, as one vector, and its number of examples.
sent: dict[int, dict[int, tuple[np.ndarray, int]]] = {}


def train(folder, strategy, arguments="", mods="", rounds=1):
    """Run seven clients, all in every round, by the whole server app."""
    values = {
        "task": "mnist-logistic", "data-source": "embedded", "num-clients": CLIENTS,
        "fraction-train": 1.0, "num-server-rounds": rounds, "run-dir": str(folder),
        "strategy": strategy, "strategy-args": arguments, "client-mods": mods,
    }  # fmt: skip
    return run_here(parse_config(values))


def record_sent(message, context, call_next):
    """Record what a client hands to the mods outside of this one."""
    reply = call_next(message, context)
    in_round = sent.setdefault(message.content["config"]["server-round"], {})
    count = reply.content["metrics"]["num-examples"]
    in_round[context.node_config["partition-id"]] = flat(reply.content["arrays"]), count
    return reply


def scale_model(message, context, call_next):
    """Make one client send its model times -1000: finite, and of the right shapes."""
    reply = call_next(message, context)
    if context.node_config["partition-id"] == MALICIOUS:
        for name, array in reply.content["arrays"].items():
            reply.content["arrays"][name] = Array(array.numpy() * np.float32(-1000))
    return reply


def flat(arrays):
    return np.concatenate([array.numpy().astype(np.float64).ravel() for array in arrays.values()])


@pytest.fixture(autouse=True)
def _nothing_sent():
    sent.clear()


def replies(server_round):
    """Return what the clients sent in the round, float64 (K, n), and their n_k."""
    vectors, counts = zip(*(sent[server_round][client] for client in range(CLIENTS)), strict=True)
    return np.stack(vectors), np.array(counts)


def mean(vectors, counts):
    return counts @ vectors / counts.sum()


ROBUST = {
    "FedMedian": "", "FedTrimmedAvg": "beta = 0.2", "Krum": "num-malicious-nodes = 1",
    "MultiKrum": "num-malicious-nodes = 1, num-nodes-to-select = 3",
}  # fmt: skip
ATTACK = f"{HERE}:record_sent,{HERE}:scale_model"


@pytest.mark.parametrize("name", ROBUST)
def test_robust_strategy_learns_despite_the_attack(tmp_path, name):
    result = train(tmp_path, f"{FLOWERS}:{name}", ROBUST[name], ATTACK, rounds=3)
    assert not any(metrics.rejected for metrics in result.history)
    assert result.history[-1].accuracy > 0.7


def test_plain_mean_fails_under_the_same_attack(tmp_path):
    result = train(tmp_path, "fedavg", "", ATTACK, rounds=3)
    assert not any(metrics.rejected for metrics in result.history)
    assert result.history[-1].accuracy < 0.2
    np.testing.assert_allclose(flat(result.model), mean(*replies(3)), rtol=1e-5)


# By wrapper: its argument for the norm, and the client mod, if any.
PRIVACY = {
    "ServerSideFixedClipping": ("clipping-norm", ""),
    "ServerSideAdaptiveClipping": ("initial-clipping-norm", ""),
    "ClientSideFixedClipping": ("clipping-norm", f"{MODS}:fixedclipping_mod,"),
    "ClientSideAdaptiveClipping": ("initial-clipping-norm", f"{MODS}:adaptiveclipping_mod,"),
}


def clipped_mean(model, vectors, norm):
    """Return the model plus the mean update, each no longer than the norm; and how many were."""
    updates = vectors - model
    lengths = np.linalg.norm(updates, axis=1)
    factors = np.minimum(1, norm / lengths)
    return model + (factors[:, None] * updates).mean(axis=0), np.mean(lengths > norm)


@pytest.mark.parametrize("kind", list(PRIVACY))
def test_privacy_without_noise_is_the_mean_of_clipped_updates(tmp_path, kind):
    key, mod = PRIVACY[kind]
    arguments = f"strategy = 'fedavg', noise-multiplier = 0.0, {key} = {NORM}"
    arguments += f", num-sampled-clients = {CLIENTS}, weights = 'uniform'"
    mods = f"{mod}{HERE}:record_sent"
    result = train(tmp_path, f"{FLOWERS}:DifferentialPrivacy{kind}", arguments, mods, rounds=3)
    assert not any(metrics.rejected for metrics in result.history)
    state = tasks.load("mnist-logistic").initial_model(1).state_dict()
    model, norm = np.concatenate([array.double().numpy().ravel() for array in state.values()]), NORM
    for server_round in (1, 2, 3):
        model, clipped = clipped_mean(model, replies(server_round)[0], norm)
        assert clipped == 1
        if "Adaptive" in kind:  # Andrew et al. 2019, at its defaults: rate 0.2, quantile 0.5
            norm *= math.exp(-0.2 * (clipped - 0.5))
    np.testing.assert_allclose(flat(result.model), model, atol=1e-6)


class WantsMore(flower.FedAvg):
    """Samples half of the nodes, and waits for more nodes than a cohort has."""

    def __init__(self) -> None:
        super().__init__(fraction_train=0.5, min_available_nodes=100)


def test_strategy_with_its_own_sampling_gets_the_whole_cohort(tmp_path):
    result = train(tmp_path, f"{__name__}:WantsMore")
    assert result.history[-1].participants == 7
