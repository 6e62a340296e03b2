"""Arrays that stay on the clients, with the real loop, strategies and ClientApp."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord

import tasks
from fedavg_app.callbacks.base import Callback
from fedavg_app.errors import ConfigError
from fedavg_app.partitioning import partition
from fedavg_app.server.preparation import prepare, resolve
from fedavg_app.server_app import run as server_run
from strategies.rounds.flower_arrays import message_bytes
from strategies.rounds.messages import VALUES as LOCAL
from tasks.training.local_training import TaskClient
from tests.support.in_process import make_config, network_with, train
from tests.support.local_grid import LocalGrid
from tests.support.run_folders import assert_model, read_history, read_summary

PATH = "tests.support.models:NORMALISED"
LAYER = ("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")


def run(strategy, **changes):
    """Return the grid, the result, and the arrays of every training, by client."""
    given: dict[int, list] = {}
    trained = TaskClient.train

    def recording(self, arrays, *others):
        copies = {name: array.copy() for name, array in arrays.items()}
        given.setdefault(self.partition, []).append(copies)
        return trained(self, arrays, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskClient, "train", recording)
        grid, result = train(task=PATH, strategy=strategy, local_arrays="1.*", **changes)
    return grid, result, given


@pytest.mark.parametrize("strategy", ["fedavg", "stc", "flwr.serverapp.strategy:FedAdam"])
def test_each_client_trains_with_its_own_arrays(strategy):
    grid, result, given = run(strategy, num_server_rounds=4, fraction_train=0.4)
    assert not any(metrics.rejected for metrics in result.history)
    states = {
        grid.partition(node): context.state[LOCAL]
        for node, context in grid.contexts.items()
        if LOCAL in context.state
    }
    assert set(states) == set(given)
    means = [state["1.running_mean"].numpy() for state in states.values()]
    assert len({mean.tobytes() for mean in means}) == len(means) > 5
    for client, calls in given.items():
        assert tuple(states[client]) == LAYER
        for before, after in pairwise(calls):
            counter = "1.num_batches_tracked"
            assert after[counter] > before[counter], "its own value, not a mean"
            assert not np.array_equal(after["1.weight"], before["1.weight"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"local_arrays": "bn*"},
            r"local-arrays = 'bn\*': 'bn\*' matches no .* send; there are: 1",
        ),
        ({"local_arrays": "1.bias, haed.*"}, "'haed.\\*' matches no array that clients send"),
        ({"local_arrays": " , "}, "there are: 1.weight"),
        ({"local_arrays": "*", "strategy": "stc"}, "nothing would be federated; give fewer, or"),
        ({"local_arrays": "?.weight,?.bias", "task": PATH}, "nothing would be federated"),
        ({"local_arrays": "1.bias", "strategy": "fedsgd"}, "fedsgd's clients send gradients"),
    ],
)
def test_patterns_that_cannot_be_used_are_refused(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        resolve(make_config(**changes))


@pytest.mark.parametrize(
    ("strategy", "arguments"),
    [
        ("fedavg", ""), ("stc", "sparsity-up = 0.1, sparsity-down = 0.1"),
        pytest.param("scaffold", "", marks=pytest.mark.slow),
        pytest.param("flwr.serverapp.strategy:FedAdam", "", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_local_arrays_do_not_travel(strategy, arguments):
    """Neither in messages nor in replies; and the others take fewer bytes than all."""
    names: dict[str, set[str]] = {"": set(), "1.*,4.*": set()}
    sizes = dict.fromkeys(names, 0)
    for local in names:

        class Recorded(LocalGrid):
            def push_messages(self, messages):
                return super().push_messages(list(map(self.seen, messages)))

            def pull_messages(self, message_ids):
                return list(map(self.seen, super().pull_messages(message_ids)))

            def seen(self, message, local=local):
                sizes[local] += message_bytes(message)
                for record in message.content.array_records.values():
                    names[local] |= set(record)
                return message

        _, result = train(
            grid_type=Recorded, task=PATH, local_arrays=local, strategy=strategy,
            strategy_args=arguments, num_clients=4, fraction_train=1.0, num_server_rounds=2,
            local_steps=2,
        )  # fmt: skip
        assert not any(metrics.rejected for metrics in result.history)
    assert {name for name in names[""] if not name.startswith(("1.", "4."))} == names["1.*,4.*"]
    assert sizes["1.*,4.*"] < sizes[""]


KEYS = {
    "task": PATH, "local_arrays": "1.*,4.*", "partition": "shards", "num_clients": 10,
    "fraction_train": 1.0, "learning_rate": 0.1,
}  # fmt: skip


def run_in_folder(folder, rounds=4, **changes):
    """Return the grid, the models of all rounds, and the result of a whole run."""
    models = []

    class Recorder(Callback):
        def on_round_end(self, metrics, model):
            models.append(model)

    keys = {**KEYS, "num_server_rounds": rounds, "run_dir": str(folder), **changes}
    config = make_config(**keys)
    prepared = prepare(config)
    grid = LocalGrid(config.model_dump(by_alias=True), config.num_clients)
    return grid, models, server_run(grid, prepared, callbacks=[lambda _: Recorder()])


def own_accuracies(grid, model, config):
    """Return each client's accuracy and number of test examples, by torch alone."""
    task = tasks.load(PATH)
    data = task.dataset(config.data_options)
    found = {}
    for node, context in grid.contexts.items():
        client = grid.partition(node)
        rows = partition(data, "test", config)[client]
        network = network_with(task, {**model, **context.state[LOCAL]})
        with torch.no_grad():
            scores = network(task.prepare(torch.tensor(data.test.inputs[rows])))
        right = (scores.argmax(1).numpy() == data.test.targets[rows]).sum()
        found[client] = right / len(rows), len(rows)
    return found


def test_run_is_judged_by_the_clients_accuracy_and_records_each_clients(tmp_path):
    grid, models, result = run_in_folder(tmp_path, fraction_evaluate=1.0)
    config = make_config(**KEYS)
    expected = own_accuracies(grid, result.model, config)
    last = read_history(result.folder)[-1]
    found = {
        int(client): accuracy for client, accuracy in last["client_values"]["accuracy"].items()
    }
    assert list(found) == list(range(10))
    assert found == pytest.approx({client: accuracy for client, (accuracy, _) in expected.items()})
    examples = sum(number for _, number in expected.values())
    own = sum(accuracy * number for accuracy, number in expected.values()) / examples
    summary = read_summary(result.folder)
    assert summary["final-accuracy"] == pytest.approx(own)
    assert own > last["accuracy"] + 0.2, "the global model is of no use to the clients"
    curve = [(metrics.round, metrics.client_metrics["accuracy"]) for metrics in result.history[1:]]
    best = max(curve, key=lambda point: point[1])
    assert (summary["best-round"], summary["best-accuracy"]) == best
    assert_model(result.folder, dict(models[best[0]]), "best.safetensors")


def test_clients_that_never_trained_are_left_out(tmp_path):
    """Their head is the initial one, which says nothing about the method."""
    grid, _, result = run_in_folder(tmp_path, 2, fraction_evaluate=1.0, fraction_train=0.2)
    last = result.history[-1]
    with_own = [context for context in grid.contexts.values() if LOCAL in context.state]
    assert 2 <= len(with_own) <= 4, "of ten"
    for context in grid.contexts.values():  # the initial values, which the others were tested with
        own = {name: result.model[name] for name in result.model if name[:2] in ("1.", "4.")}
        context.state.setdefault(LOCAL, ArrayRecord(own))
    every = own_accuracies(grid, result.model, make_config(**KEYS))
    trained = {grid.partition(node) for node, c in grid.contexts.items() if c in with_own}
    expected = {client: own for client, own in every.items() if client in trained}
    found = last.client_values["accuracy"]
    assert found == pytest.approx({client: accuracy for client, (accuracy, _) in expected.items()})
    examples = sum(number for _, number in expected.values())
    pooled = sum(accuracy * number for accuracy, number in expected.values()) / examples
    assert last.client_metrics["accuracy"] == pytest.approx(pooled)
    of = f"{len(trained)} of 10 clients"
    names = ("loss", "accuracy", "accuracy-mean", "accuracy-p10")
    assert last.partial == {f"client_metrics.{name}": of for name in names}


def test_round_in_which_no_tested_client_has_trained_has_no_value(tmp_path, caplog):
    caplog.set_level("INFO")
    keys = {"fraction_evaluate": 0.1, "fraction_train": 0.1, "seed": 2}
    grid, _, result = run_in_folder(tmp_path, 1, **keys)
    assert sum(LOCAL in context.state for context in grid.contexts.values()) == 1
    assert (result.history[-1].client_metrics, result.history[-1].client_values) == ({}, {})
    assert not result.history[-1].rejected
    assert "tests by clients that have never trained (1)" in caplog.text
    assert "no value over all" not in caplog.text


@pytest.mark.slow
def test_target_and_patience_use_the_clients_accuracy(tmp_path):
    _, _, whole = run_in_folder(tmp_path / "whole", 8, fraction_evaluate=1.0)
    own = [metrics.client_metrics["accuracy"] for metrics in whole.history[1:]]
    reached = next(number for number, accuracy in enumerate(own, 1) if accuracy >= own[2])
    assert max(metrics.accuracy for metrics in whole.history) < own[2]
    keys = {"fraction_evaluate": 1.0, "target": own[2]}
    _, _, result = run_in_folder(tmp_path / "target", 8, **keys)
    assert result.history[-1].round == reached
    assert reached - 1 < read_summary(result.folder)["rounds-to-target"] <= reached
    _, _, result = run_in_folder(tmp_path / "patience", 50, fraction_evaluate=1.0, patience=2)
    own = [metrics.client_metrics["accuracy"] for metrics in result.history[1:]]
    assert len(own) - 1 - own.index(max(own)) == 2


def test_run_without_client_tests_warns_first_that_accuracy_will_be_unknown(tmp_path, caplog):
    _, _, result = run_in_folder(tmp_path, 2, target=0.01, patience=1, local_steps=1)
    (warning,) = [record for record in caplog.records if "fraction-evaluate" in record.getMessage()]
    assert warning.getMessage() == (
        "local-arrays = '1.*,4.*' with fraction-evaluate = 0: the clients' own accuracy will not "
        "be known, so there is no best model, and neither a target nor patience ends the run; "
        "give fraction-evaluate, as 1.0"
    )
    assert result.history[-1].round == 2
    summary = read_summary(result.folder)
    keys = ("best-accuracy", "best-round", "final-accuracy", "rounds-to-target")
    assert [summary[key] for key in keys] == [None] * 4
    assert not (result.folder / "best.safetensors").exists()
    caplog.clear()
    run_in_folder(tmp_path, 1, fraction_evaluate=0.1, local_steps=1)
    run_in_folder(tmp_path, 1, local_arrays="", local_steps=1)
    assert "fraction-evaluate" not in caplog.text


def test_evaluation_of_the_saved_model_says_that_local_arrays_are_not_in_it(tmp_path, command_line):
    _, _, result = run_in_folder(tmp_path, 1, fraction_evaluate=1.0)
    status, shown, error = command_line("evaluate", result.folder)
    assert status == 0
    assert f"test accuracy {result.history[-1].accuracy:.4f}" in shown
    assert "local-arrays = '1.*,4.*': each client has its own values of these" in error
