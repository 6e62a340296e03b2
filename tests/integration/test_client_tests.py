"""The clients' own tests: each metric is that of all their examples at once."""

import dataclasses

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from torchmetrics.classification import MulticlassAUROC, MulticlassF1Score
from torchmetrics.regression import R2Score

from fedavg_app.client.metric_states import STATES
from fedavg_app.partitioning import partition
from tasks.data.dataset import Split
from tasks.metrics import _warn_once
from tests.support import networks
from tests.support.in_process import make_config, network_with, train

COUNT = 6
TASK = dataclasses.replace(
    networks.MLP,
    name="scored",
    metrics={
        "f1": MulticlassF1Score(networks.CLASSES, average="macro"),
        "gap": lambda outputs, targets: (outputs.std(1).sum(), len(targets)),
        "mae": lambda outputs, targets: ((outputs[:, 0] - targets).abs().sum(), len(targets)),
    },
    objective="min mae",
)
KEYS = {
    "task": f"{__name__}:TASK", "num_clients": COUNT, "fraction_train": 1.0, "local_steps": 2,
    "num_server_rounds": 2, "fraction_evaluate": 1.0, "partition": "dirichlet",
    "partition_args": "alpha = 5.0", "batch_size": 8,
}  # fmt: skip


def outputs_of(result, rows):
    """Return the final model's outputs and the targets of some test examples."""
    test = TASK.dataset(None).test
    with torch.no_grad():
        outputs = network_with(TASK, result.model)(TASK.prepare(torch.tensor(test.inputs[rows])))
    return outputs, torch.tensor(test.targets[rows])


def f1(outputs, targets):
    return f1_score(targets, outputs.argmax(1), average="macro", labels=range(4), zero_division=0)


def mae(outputs, targets):
    return float((outputs[:, 0] - targets).abs().mean())


@pytest.mark.parametrize("strategy", ["fedavg", "stc", "flwr.serverapp.strategy:FedAdam"])
def test_metrics_are_those_of_all_examples_and_of_each_client(strategy):
    _, result = train(strategy=strategy, **KEYS)
    last, config = result.history[-1], make_config(**KEYS)
    parts = partition(TASK.dataset(None), "test", config)
    for name, function in (("f1", f1), ("mae", mae)):
        own = [function(*outputs_of(result, rows)) for rows in parts]
        whole = function(*outputs_of(result, np.concatenate(parts)))
        assert last.client_metrics[name] == pytest.approx(whole, abs=1e-6)
        assert last.client_values[name] == pytest.approx(dict(enumerate(own)), abs=1e-6)
        assert last.client_metrics[f"{name}-mean"] == pytest.approx(np.mean(own), abs=1e-6)
        every = function(*outputs_of(result, np.arange(len(TASK.dataset(None).test))))
        assert last.test_metrics[name] == pytest.approx(every, abs=1e-6)
    assert last.client_metrics["f1"] != pytest.approx(last.client_metrics["f1-mean"], abs=1e-3)
    own = [*last.client_values["mae"].values()]
    assert last.client_metrics["mae-p90"] == pytest.approx(np.percentile(own, 90))
    assert "f1-p10" in last.client_metrics
    assert last.accuracy is None


def spoil(message, context, call_next):
    """Break the states of one client's F1, as a faulty client might."""
    reply = call_next(message, context)
    if STATES in reply.content and context.node_config["partition-id"] == 2:
        record = reply.content[STATES]
        names = [name for name in record if "/f1/" in name]
        arrays = {name: metric for name, metric in record.items() if name not in names}
        reply.content[STATES] = ArrayRecord(arrays | SPOILT[context.run_config["seed"]](names))
    return reply


SPOILT = {
    1: lambda _: {},
    2: lambda names: {name: Array(np.zeros(3, np.int64)) for name in names},
    3: lambda names: {name.replace("/tp", "/oops"): Array(np.zeros(4)) for name in names},
    4: lambda names: {name.replace("/", ""): Array(np.zeros(4)) for name in names},
}


@pytest.mark.parametrize("seed", SPOILT)
def test_client_whose_states_cannot_be_used_is_left_out_of_that_metric(seed):
    _, result = train(seed=seed, client_mods=f"{__name__}:spoil", **KEYS)
    last = result.history[-1]
    assert not last.rejected
    assert sorted(last.client_values["f1"]) == [0, 1, 3, 4, 5]
    assert last.partial["client_metrics.f1"] == "5 of 6 clients"
    left = [2] if seed == 4 else []
    assert sorted(last.client_values["mae"]) == [
        client for client in range(6) if client not in left
    ]


def test_client_without_its_own_value_counts_in_the_overall_value():
    """R2 needs two examples; the seventh client has one."""
    task = f"{__name__}:FEW"
    keys = {**KEYS, "task": task, "num_clients": 7, "partition": f"{__name__}:one_for_the_last"}
    _, result = train(**keys | {"partition_args": ""})
    last, data = result.history[-1], TASK.dataset(None)
    assert sorted(last.client_values["r2"]) == [0, 1, 2, 3, 4, 5]
    outputs, targets = outputs_of(result, np.arange(len(data.test)))
    assert last.client_metrics["r2"] == pytest.approx(r2_score(targets, outputs[:, 0]), abs=1e-5)
    of_six = "6 of 7 clients"
    assert last.partial == {"client_metrics.r2-mean": of_six, "client_metrics.r2-p10": of_six}


class FirstOutput(R2Score):
    """R2 of the first output, as a column: its states have another shape than those of a vector."""

    def update(self, outputs, targets):
        super().update(outputs[:, :1], targets.float()[:, None])


FEW = dataclasses.replace(TASK, metrics={"r2": FirstOutput()}, objective="")


def one_for_the_last(labels, num_clients, seed):
    """Give the last client one example, and the others equal parts of the rest."""
    order = np.arange(len(labels))
    return [*np.array_split(order[:-1], num_clients - 1), order[-1:]]


LIKELY = dataclasses.replace(
    TASK,
    predict=lambda outputs: outputs.softmax(-1),
    metrics={"auc": MulticlassAUROC(networks.CLASSES), "recall": MulticlassF1Score(4)},
    objective="",
)


def two_classes_for_some(labels, num_clients, seed):
    """Give the first two clients two of the classes each, and the others a part of the rest."""
    order = np.argsort(labels, kind="stable")
    size = len(labels) // (2 * num_clients)
    rest = np.random.default_rng(0).permutation(order[size:-size])
    return [order[:size], order[-size:], *np.array_split(rest, num_clients - 2)]


def auc(outputs, targets):
    return roc_auc_score(targets, outputs.softmax(1), multi_class="ovr")


@pytest.mark.parametrize("strategy", ["fedavg", "flwr.serverapp.strategy:FedAdam"])
def test_client_without_a_class_is_left_out_of_the_mean_of_what_it_leaves_undefined(
    strategy, caplog
):
    """torchmetrics counts 0 for an absent class, and warns; the F1 says nothing of it."""
    _warn_once.cache_clear()
    partition_key = {"partition": f"{__name__}:two_classes_for_some", "partition_args": ""}
    keys = {**KEYS, **partition_key, "task": f"{__name__}:LIKELY", "strategy": strategy}
    _, result = train(**keys)
    last, parts = result.history[-1], partition(TASK.dataset(None), "test", make_config(**keys))
    whole = auc(*outputs_of(result, np.concatenate(parts)))
    assert last.client_metrics["auc"] == pytest.approx(whole, abs=1e-6)
    own = {client: auc(*outputs_of(result, parts[client])) for client in range(2, COUNT)}
    assert last.client_values["auc"] == pytest.approx(own, abs=1e-6)
    assert last.client_metrics["auc-mean"] == pytest.approx(np.mean([*own.values()]), abs=1e-6)
    of_four = {f"client_metrics.auc-{name}": "4 of 6 clients" for name in ("mean", "p10")}
    assert last.partial == of_four
    assert len(last.client_values["recall"]) == COUNT
    warned = [text for text in caplog.messages if text.startswith("auc: No positive samples")]
    assert len(warned) == 1, "shown, and once"


def with_unlabelled(options):
    """Return images of which every other one of the last half is no prediction."""
    data = networks.images(options)
    targets = data.test.targets.copy()
    targets[len(targets) // 2 :: 2] = -100
    return dataclasses.replace(data, test=Split(data.test.inputs, targets))


UNLABELLED = dataclasses.replace(networks.MLP, dataset=with_unlabelled)


def unequal(labels, num_clients, seed):
    """Give the clients consecutive examples: 5, 10, 15, 20 and 50 hundredths."""
    return np.split(np.arange(len(labels)), [len(labels) * n // 100 for n in (5, 15, 30, 50)])


def test_clients_with_and_without_states_count_by_their_examples():
    """A client all of whose examples are predictions sends the mean alone: its weight is n_k."""
    keys = {"task": f"{__name__}:UNLABELLED", "num_clients": 5, "partition": f"{__name__}:unequal"}
    _, result = train(**{**KEYS, **keys, "partition_args": "", "local_steps": 5})
    last, data = result.history[-1], with_unlabelled(None)
    outputs, _ = outputs_of(result, np.arange(len(data.test)))
    right = outputs.argmax(1).numpy() == data.test.targets
    is_labelled = data.test.targets >= 0
    assert last.client_metrics["accuracy"] == pytest.approx(right[is_labelled].mean())
    assert last.client_metrics["accuracy"] != pytest.approx(last.client_metrics["accuracy-mean"])
    assert not last.partial
