"""Personal models: each method against its equations in plain torch, on whole batches."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedavg_app.partitioning import partition
from strategies.rounds.client_memory import ClientMemory
from strategies.rounds.messages import VALUES as LOCAL
from tests.support import networks
from tests.support.documents import ROOT, examples
from tests.support.in_process import make_config, train

PAGE = examples(ROOT / "docs" / "personal-models.md")
TASK, HEAD = networks.MLP, "3."
RATE, STEPS, COUNT, ROUNDS = 0.05, 3, 4, 3
KEYS = {
    "task": "tests.support.networks:MLP", "num_clients": COUNT, "fraction_train": 1.0,
    "fraction_evaluate": 1.0, "local_steps": STEPS, "batch_size": 0, "learning_rate": RATE,
    "num_server_rounds": ROUNDS, "partition": "dirichlet", "partition_args": "alpha = 0.5",
    "target": "none",
}  # fmt: skip


def split(name):
    """Return each client's inputs and targets."""
    data = TASK.dataset(None)
    part = data.train if name == "train" else data.test
    return [
        (torch.tensor(part.inputs[rows]), torch.tensor(part.targets[rows]))
        for rows in partition(data, name, make_config(**KEYS))
    ]


def gradient(weights, inputs, targets):
    """Return the gradient of the mean loss at these weights, by name."""
    model = TASK.model()
    model.load_state_dict(weights)
    cross_entropy(model(inputs), targets).backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def step(weights, data, names=None, near=None, strength=0.0):
    """Return w - eta (grad F(w) + strength (w - near)) for the weights of these names."""
    moved = dict(weights)
    for name, g in gradient(weights, *data).items():
        if names is None or name in names:
            pull = strength * (weights[name] - near[name]) if near else 0
            moved[name] = weights[name] - RATE * (g + pull)
    return moved


def steps(weights, data, number=STEPS, **terms):
    for _ in range(number):
        weights = step(weights, data, **terms)
    return weights


def mean(models, sizes):
    return {
        name: sum(n * model[name] for n, model in zip(sizes, models, strict=True)) / sum(sizes)
        for name in models[0]
    }


def initial():
    return {name: weight.clone() for name, weight in TASK.initial_model(1).state_dict().items()}


def close(found, expected):
    for name, array in found.items():
        np.testing.assert_allclose(array.numpy(), expected[name].numpy(), rtol=0, atol=1e-6)


def scores(weights, data):
    """Return the accuracy and the mean loss of a model on a client's test examples."""
    model = TASK.model()
    model.load_state_dict(weights)
    with torch.no_grad():
        outputs = model(data[0])
    right = (outputs.argmax(1) == data[1]).double().mean()
    return float(right), float(cross_entropy(outputs, data[1]))


def check_tests(result, models):
    """Check each client's own values of the last test, of these models by client."""
    accuracy, loss = zip(*map(scores, models, split("test")), strict=True)
    values = result.history[-1].client_values
    assert values["accuracy"] == pytest.approx(dict(enumerate(accuracy)))
    assert values["loss"] == pytest.approx(dict(enumerate(loss)), abs=1e-6)
    assert not any(metrics.rejected for metrics in result.history)


def states(grid):
    """Return the clients' states, by client."""
    return [grid.contexts[grid.node(client)].state for client in range(COUNT)]


def test_clients_with_all_arrays_local_train_alone():
    grid, result = train(**KEYS, local_arrays="*")
    models = [initial() for _ in range(COUNT)]
    for _ in range(ROUNDS):
        models = [steps(model, data) for model, data in zip(models, split("train"), strict=True)]
    for state, model in zip(states(grid), models, strict=True):
        close(state[LOCAL], model)
    check_tests(result, models)
    assert all(metrics.bytes_up < 100 * COUNT for metrics in result.history), "metrics only"


def test_fine_tuned_model_is_tested_and_dropped():
    _, plain = train(**KEYS)
    _, result = train(**KEYS, evaluate_after_steps=5)
    close(result.model, {name: torch.tensor(a.numpy()) for name, a in plain.model.items()})
    received = {name: torch.tensor(array.numpy()) for name, array in result.model.items()}
    check_tests(plain, [received] * COUNT)
    check_tests(result, [steps(received, data, 5) for data in split("train")])


def test_fine_tuning_begins_with_a_clients_own_arrays():
    grid, result = train(**KEYS, local_arrays=f"{HEAD}*", evaluate_after_steps=2)
    models = []
    for state, data in zip(states(grid), split("train"), strict=True):
        own = {**result.model, **state[LOCAL]}
        own = {name: torch.tensor(array.numpy()) for name, array in own.items()}
        models.append(steps(own, data, 2))
    check_tests(result, models)


def test_batches_of_fine_tuning_are_those_of_the_client_and_the_round():
    keys = {**KEYS, "batch_size": 5, "evaluate_after_steps": 4, "num_server_rounds": 2}
    results = [train(**keys, seed=seed)[1].history for seed in (1, 1, 2)]
    values = [[metrics.client_values for metrics in history[1:]] for history in results]
    assert values[0] == values[1]
    assert values[0] != values[2]


def test_ditto_of_the_page_is_its_equation(tmp_path, monkeypatch):
    (tmp_path / "ditto.py").write_text(PAGE["ditto.py"])
    monkeypatch.syspath_prepend(tmp_path)
    strength = 0.7
    keys = {"strategy": "ditto:Ditto", "strategy_args": f"strength = {strength}"}
    grid, result = train(**KEYS, **keys)
    data, w = split("train"), initial()
    own = [w] * COUNT
    for _ in range(ROUNDS):
        own = [steps(v, d, near=w, strength=strength) for v, d in zip(own, data, strict=True)]
        w = mean([steps(w, d) for d in data], [len(d[1]) for d in data])
    close(result.model, w)
    for state, v in zip(states(grid), own, strict=True):
        close(ClientMemory.read(state).model, v)
    check_tests(result, own)
    _, plain = train(**KEYS)
    assert result.history[-1].bytes_up == pytest.approx(plain.history[-1].bytes_up, rel=0.01)


def test_fedrep_of_the_page_is_its_algorithm(tmp_path, monkeypatch):
    (tmp_path / "fedrep.py").write_text(PAGE["fedrep.py"])
    monkeypatch.syspath_prepend(tmp_path)
    import fedrep

    monkeypatch.setattr(fedrep, "HEAD", HEAD)
    monkeypatch.setattr(fedrep, "TASK", dataclasses.replace(TASK, train=fedrep.train))
    keys = {**KEYS, "task": "fedrep:TASK", "local_steps": 0, "local_epochs": 2}
    grid, result = train(**keys, local_arrays=f"{HEAD}*")
    data, body = split("train"), initial()
    head = {name for name in body if name.startswith(HEAD)}
    models = [body] * COUNT
    for _ in range(ROUNDS):
        models = [{**body, **{name: own[name] for name in head}} for own in models]
        models = [
            steps(steps(own, d, fedrep.HEAD_EPOCHS, names=head), d, 2, names=set(body) - head)
            for own, d in zip(models, data, strict=True)
        ]
        body = mean(models, [len(d[1]) for d in data])
    close({name: result.model[name] for name in set(body) - head}, body)
    for state, own in zip(states(grid), models, strict=True):
        close(state[LOCAL], own)
    check_tests(result, [{**body, **{name: own[name] for name in head}} for own in models])


@pytest.mark.parametrize(
    ("strategy", "arguments", "task", "local"),
    [
        ("stc", "sparsity-up = 0.1, sparsity-down = 0.1", "MLP", f"{HEAD}*"),
        ("eden", "bits = 1", "BATCH_NORM", "1.*"),
    ],
)
def test_compressed_strategies_leave_local_arrays_to_their_clients(
    strategy, arguments, task, local
):
    keys = {
        **KEYS, "task": f"tests.support.networks:{task}", "strategy": strategy,
        "strategy_args": arguments, "fraction_train": 0.5, "num_server_rounds": 2, "seed": 3,
    }  # fmt: skip
    grid, result = train(**keys, local_arrays=local)
    trained = {client for client, state in enumerate(states(grid)) if LOCAL in state}
    last = result.history[-1]
    assert not any(metrics.rejected for metrics in result.history)
    assert set(last.client_values["accuracy"]) == set(last.client_values["loss"]) == trained
    own = {state[LOCAL][f"{local[0]}.weight"].numpy().tobytes() for state in states(grid)
           if LOCAL in state}  # fmt: skip
    assert len(own) == len(trained) >= 2
    _, whole = train(**keys)
    assert sum(m.bytes_up for m in result.history) < sum(m.bytes_up for m in whole.history)


def test_fine_tuning_without_tests_is_refused():
    with pytest.raises(ValueError, match="evaluate-after-steps = 5: clients do not test; give fra"):
        make_config(**{**KEYS, "evaluate_after_steps": 5, "fraction_evaluate": 0.0})
