"""Flower's robust strategies against a malicious client, and its privacy wrappers.

Both are compared with the published formulas, computed in float64 from what the clients sent.
"""

import math

import numpy as np
import pytest
from flwr.app import Array
from flwr.clientapp.mod import LocalDpMod

import tasks
from fedavg_app.config import parse_config
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from tests.support.local_grid import LocalGrid

CLIENTS = 7
MALICIOUS = 2
HERE = __name__
FLOWERS = "flwr.serverapp.strategy"
MODS = "flwr.clientapp.mod"
NORM = 0.05
# By round and client: what it sent, as one vector, and its number of examples.
sent: dict[int, dict[int, tuple[np.ndarray, int]]] = {}
local_privacy = LocalDpMod(clipping_norm=NORM, sensitivity=0.02, epsilon=1.0, delta=0.1)


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


def train(tmp_path, strategy, arguments="", mods="", rounds=1, **changes):
    """Run all clients in this process; return the result."""
    values = {
        "task": "mnist-logistic", "data-source": "embedded", "num-clients": CLIENTS,
        "fraction-train": 1.0, "num-server-rounds": rounds, "run-dir": str(tmp_path),
        "strategy": strategy, "strategy-args": arguments, "client-mods": mods, **changes,
    }  # fmt: skip
    config = parse_config(values)
    return run(LocalGrid(config.model_dump(by_alias=True), CLIENTS), prepare(config))


def replies(server_round):
    """Return what the clients sent in the round, float64 (K, n), and their n_k."""
    vectors, counts = zip(*(sent[server_round][client] for client in range(CLIENTS)), strict=True)
    return np.stack(vectors), np.array(counts)


def mean(vectors, counts):
    return counts @ vectors / counts.sum()


def trimmed_mean(vectors, counts):
    """Without the largest and the smallest of every entry: int(0.2 * 7) = 1 at each end."""
    del counts
    return np.sort(vectors, axis=0)[1:-1].mean(axis=0)


def krum(selected):
    """Blanchard et al. 2017: who is nearest to its n - f - 2 = 4 neighbours, for f = 1."""

    def choose(vectors, counts):
        squares = np.square(vectors[:, None] - vectors[None]).sum(axis=2)
        scores = np.sort(squares, axis=1)[:, 1:5].sum(axis=1)
        best = np.argsort(scores)[:selected]
        return mean(vectors[best], counts[best])

    return choose


ROBUST = {
    "FedMedian": ("", lambda vectors, _: np.median(vectors, axis=0)),
    "FedTrimmedAvg": ("beta = 0.2", trimmed_mean),
    "Krum": ("num-malicious-nodes = 1", krum(1)),
    "MultiKrum": ("num-malicious-nodes = 1, num-nodes-to-select = 3", krum(3)),
}
ATTACK = f"{HERE}:record_sent,{HERE}:scale_model"


@pytest.mark.parametrize("name", list(ROBUST))
def test_robust_mean_is_the_published_one_and_learns_despite_the_attack(tmp_path, name):
    arguments, reference = ROBUST[name]
    result = train(tmp_path, f"{FLOWERS}:{name}", arguments, ATTACK, rounds=3)
    assert not any(metrics.rejected for metrics in result.history)
    assert result.history[-1].accuracy > 0.7
    np.testing.assert_allclose(flat(result.model), reference(*replies(3)), rtol=1e-5, atol=1e-6)


def test_plain_mean_fails_under_the_same_attack(tmp_path):
    result = train(tmp_path, "fedavg", "", ATTACK, rounds=3)
    assert not any(metrics.rejected for metrics in result.history)
    assert result.history[-1].accuracy < 0.2
    np.testing.assert_allclose(flat(result.model), mean(*replies(3)), rtol=1e-5)


def test_plain_mean_with_a_norm_bound_rejects_the_malicious_client_and_learns(tmp_path):
    result = train(tmp_path, "fedavg", "", ATTACK, rounds=3, **{"max-update-norm": 10.0})
    for metrics in result.history[1:]:
        assert len(metrics.rejected) == 1
        assert "max-update-norm is 10" in next(iter(metrics.rejected.values()))
    assert result.history[-1].accuracy > 0.7
    vectors, counts = replies(3)
    honest = np.arange(CLIENTS) != MALICIOUS
    expected = mean(vectors[honest], counts[honest])
    np.testing.assert_allclose(flat(result.model), expected, rtol=1e-5, atol=1e-6)


# By where Flower clips: the wrapper's name of the norm, and the client's mod where there is one.
PRIVACY = {
    "ServerSideFixedClipping": ("clipping-norm", ""),
    "ServerSideAdaptiveClipping": ("initial-clipping-norm", ""),
    "ClientSideFixedClipping": ("clipping-norm", f"{MODS}:fixedclipping_mod,"),
    "ClientSideAdaptiveClipping": ("initial-clipping-norm", f"{MODS}:adaptiveclipping_mod,"),
}


def train_privately(tmp_path, kind, noise, rounds=1):
    norm, mod = PRIVACY[kind]
    name = f"{FLOWERS}:DifferentialPrivacy{kind}"
    arguments = f"strategy = 'fedavg', noise-multiplier = {noise}, {norm} = {NORM}"
    arguments += f", num-sampled-clients = {CLIENTS}, weights = 'uniform'"
    result = train(tmp_path, name, arguments, f"{mod}{HERE}:record_sent", rounds)
    assert not any(metrics.rejected for metrics in result.history)
    return flat(result.model)


def clipped_mean(model, vectors, norm):
    """Return the model plus the mean update, each no longer than the norm; and how many were."""
    updates = vectors - model
    lengths = np.linalg.norm(updates, axis=1)
    factors = np.minimum(1, norm / lengths)
    return model + (factors[:, None] * updates).mean(axis=0), np.mean(lengths > norm)


def initial():
    state = tasks.load("mnist-logistic").initial_model(1).state_dict()
    return np.concatenate([array.numpy().astype(np.float64).ravel() for array in state.values()])


@pytest.mark.parametrize("kind", list(PRIVACY))
def test_privacy_without_noise_is_the_mean_of_clipped_updates(tmp_path, kind):
    found = train_privately(tmp_path, kind, noise=0.0, rounds=3)
    model, norm = initial(), NORM
    for server_round in (1, 2, 3):
        model, clipped = clipped_mean(model, replies(server_round)[0], norm)
        assert clipped == 1
        if "Adaptive" in kind:  # Andrew et al. 2019, at its defaults: rate 0.2, quantile 0.5
            norm *= math.exp(-0.2 * (clipped - 0.5))
    np.testing.assert_allclose(found, model, atol=1e-6)


@pytest.mark.parametrize("kind", list(PRIVACY))
def test_privacy_noise_has_the_published_deviation(tmp_path, kind):
    """z S / K; adaptive clipping adds some of it to the count of clipped updates, b = K / 20."""
    z, norm = 0.5, NORM
    if "Adaptive" in kind:
        b = CLIENTS / 20
        fraction = np.random.RandomState(3).normal(CLIENTS, b) / CLIENTS  # its first draw
        norm *= math.exp(-0.2 * (fraction - 0.5))
        z = (z**-2 - (2 * b) ** -2) ** -0.5
    np.random.seed(3)  # noqa: NPY002 - Flower draws from NumPy's global generator
    found = train_privately(tmp_path, kind, noise=0.5)
    noise = found - clipped_mean(initial(), replies(1)[0], NORM)[0]
    assert_normal(noise, z * norm / CLIENTS)


def test_noise_of_local_privacy_is_averaged_over_the_clients(tmp_path):
    """sigma = s sqrt(2 log(1.25 / delta)) / epsilon at each client, a K-th of the variance here."""
    np.random.seed(4)  # noqa: NPY002
    mods = f"{HERE}:local_privacy,{HERE}:record_sent"
    result = train(tmp_path, "fedavg", "weights = 'uniform'", mods)
    assert not any(metrics.rejected for metrics in result.history)
    noise = flat(result.model) - clipped_mean(initial(), replies(1)[0], NORM)[0]
    deviation = 0.02 * math.sqrt(2 * math.log(1.25 / 0.1))
    assert_normal(noise, deviation / math.sqrt(CLIENTS))


def assert_normal(noise, deviation):
    """Mean, deviation and share within one deviation, to five of their standard errors."""
    scaled, count = noise / deviation, len(noise)
    assert abs(scaled.mean()) < 5 / math.sqrt(count)
    assert scaled.std() == pytest.approx(1, abs=5 / math.sqrt(2 * count))
    share = math.erf(math.sqrt(0.5))
    error = math.sqrt(share * (1 - share) / count)
    assert np.mean(np.abs(scaled) < 1) == pytest.approx(share, abs=5 * error)
