"""Models as people bring them, under every strategy: what is trained, fixed, a buffer, an alias."""

import dataclasses
import re
from itertools import product

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from safetensors.numpy import load_file

import strategies
from fedavg_app.central_sgd import train_centrally
from fedavg_app.config import CentralConfig
from fedavg_app.errors import ConfigError
from fedavg_app.results.run_folder import save_model
from fedavg_app.server.global_model import GlobalModel
from fedavg_app.server.preparation import resolve
from strategies.rounds.flower_arrays import from_record
from tests.support import models
from tests.support.in_process import make_config, train
from tests.support.models import LARGE
from tests.support.rounding import assert_same_change

MODULE = "tests.support.models:"
SPARSE = "tests.support.networks:SPARSE_WORD"
FLOWERS = [
    f"flwr.serverapp.strategy:{name}"
    for name in ("FedAvg", "FedAvgM", "FedAdam", "FedYogi", "FedMedian", "Krum")
]
ARGUMENTS = {
    "compressed": "uplink = 'rotated', downlink = 'rotated'",
    "stc": "scope = 'model', sparsity-up = 0.3, sparsity-down = 0.3",
}
QUICK = {"fedsgd", "stc", "eden", "qsgd", FLOWERS[2]}


def run(task, strategy, **changes):
    """Return the initial model, and the model after 5 rounds, by name, with the result."""
    changes = {
        "strategy_args": ARGUMENTS.get(strategy, ""), "num_server_rounds": 5, "partition": "iid",
        "batch_size": 50, **changes,
    }  # fmt: skip
    kept = []
    config = make_config(task=MODULE + task, strategy=strategy, **changes)
    initial = GlobalModel.initial(getattr(models, task), config)
    keep = lambda _, model: kept.append(from_record(initial.complete(model)))  # noqa: E731
    _, result = train(task=MODULE + task, strategy=strategy, on_round_end=keep, **changes)
    return kept[0], kept[-1], result


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in [*strategies.names(), *FLOWERS]
        if name != "secure-sum"  # it refuses buffers
    ],
)
def test_each_class_of_arrays_is_what_it_should_be_after_five_rounds(strategy):
    before, after, result = run("EVERYTHING", strategy)
    assert not any(metrics.rejected for metrics in result.history)
    assert list(after) == list(models.EVERYTHING.model().state_dict())
    assert not {"base.weight", "base.bias", "tied.weight", "same_norm.weight"} & set(result.model)
    for name in ("base.weight", "base.bias", "large", "phase", "mask"):
        np.testing.assert_array_equal(after[name], before[name], strict=True)
    assert after["large"] == LARGE
    np.testing.assert_array_equal(after["tied.weight"], after["inner.weight"])
    for name in ("weight", "running_mean", "running_var"):
        np.testing.assert_array_equal(after[f"norm.{name}"], after[f"same_norm.{name}"])
    for name in ("head.weight", "norm.running_mean"):
        assert not np.array_equal(after[name], before[name]), name
    assert (after["norm.running_var"] > 0).all()
    assert after["norm.num_batches_tracked"] > 0


def test_client_with_other_fixed_arrays_is_refused_in_one_line(monkeypatch):
    """The server's model has other pretrained weights than the clients'."""
    ours = models.EVERYTHING.model

    def others():
        network = ours()
        torch.nn.init.constant_(network.base.bias, 0.5)
        return network

    config = make_config(task=MODULE + "EVERYTHING")
    theirs = GlobalModel.initial(dataclasses.replace(models.EVERYTHING, model=others), config)
    mine = GlobalModel.initial(models.EVERYTHING, config)
    assert theirs.fingerprint != mine.fingerprint
    parts = dataclasses.replace(resolve(config), model=theirs)
    monkeypatch.setattr("tests.support.in_process.resolve", lambda _: parts)
    reasons = []
    keep = lambda metrics, _: reasons.extend(metrics.rejected.values())  # noqa: E731
    with pytest.raises(Exception, match="no usable reply") as error:
        train(task=MODULE + "EVERYTHING", on_round_end=keep)
    assert "give both the same pretrained weights" in str(error.value)
    assert theirs.fingerprint in reasons[0]
    assert mine.fingerprint in reasons[0]


@pytest.mark.parametrize("strategy", ["fedavg", FLOWERS[0], "stc"])
def test_unusable_dtype_is_refused_in_one_line_before_the_run(strategy):
    text = (
        f"task = '{MODULE}COMPLEX': array 'layer.weight' is complex64: give a model whose trained"
    )
    with pytest.raises(ConfigError, match=re.escape(text)):
        resolve(make_config(task=f"{MODULE}COMPLEX", strategy=strategy))


@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        *product(["FLOAT16"], ["fedavg", "fedsgd", "scaffold", "stc", "eden", FLOWERS[0]]),
        *product(["BFLOAT16", "FLOAT64"], ["fedavg", "stc", FLOWERS[0]]),
    ],
)
def test_other_float_dtypes_are_trained_and_kept_by_every_strategy(task, strategy):
    """Except bfloat16, which NumPy lacks: it is sent as float32."""
    before, after, result = run(task, strategy, num_server_rounds=2)
    assert not result.history[-1].rejected
    travels = "float32" if task == "BFLOAT16" else task.lower()
    assert after["layer.weight"].dtype == np.dtype(travels)
    assert not np.array_equal(after["layer.weight"], before["layer.weight"])


@pytest.mark.parametrize("layout", ["transposed", "fortran", "sliced", "reversed", "scalar"])
def test_arrays_of_every_memory_layout_are_written_as_they_are(layout, tmp_path):
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    array = {
        "transposed": base.T, "fortran": np.asfortranarray(base), "sliced": base[::2, 1::2],
        "reversed": base[::-1, ::-1], "scalar": np.array(2.5, np.float32),
    }[layout]  # fmt: skip
    save_model(ArrayRecord({"a": Array(array)}), tmp_path / "m.safetensors")
    np.testing.assert_array_equal(load_file(tmp_path / "m.safetensors")["a"], array, strict=True)


def test_central_training_keeps_fixed_arrays_and_aliases(tmp_path):
    config = CentralConfig(
        task=MODULE + "EVERYTHING", data_source="embedded", num_server_rounds=20,
        evaluate_every=20, run_dir=str(tmp_path),
    )  # fmt: skip
    result = train_centrally(config, models.EVERYTHING)
    initial = models.EVERYTHING.initial_model(1).state_dict()
    after = from_record(result.model)
    assert list(after) == list(initial)
    np.testing.assert_array_equal(after["base.weight"], initial["base.weight"].numpy())
    np.testing.assert_array_equal(after["tied.weight"], after["inner.weight"])


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        (MODULE + "VOLUMES", {}), (SPARSE, {}), (SPARSE, {"strategy": "fedsgd"}),
        (SPARSE, {"strategy": "stc", "momentum": 0.5}),
    ],
)  # fmt: skip
def test_any_other_module_is_trained(task, changes):
    """Of five dimensions; with a sparse embedding and padding."""
    _, result = train(task=task, partition="iid", num_server_rounds=2, **changes)
    assert not any(metrics.rejected for metrics in result.history)
    assert result.history[-1].test_loss < result.history[0].test_loss


def test_batches_of_one_image_are_not_joined():
    """Batch normalisation accepts a single image, which has many pixels."""
    _, result = train(
        task=MODULE + "NORMALISED", batch_size=1, num_clients=40, fraction_train=0.05,
        num_server_rounds=1,
    )  # fmt: skip
    assert result.history[-1].train_loss < 3


def test_clients_clip_no_statistics():
    """The clipping mods would scale the update by the norm of a counter."""
    wrapper = "flwr.serverapp.strategy:DifferentialPrivacyClientSideFixedClipping"
    changes = {
        "task": MODULE + "NORMALISED", "strategy": wrapper,
        "client_mods": "flwr.clientapp.mod:fixedclipping_mod",
        "strategy_args": "strategy = 'flwr.serverapp.strategy:FedAvg', noise-multiplier = 0.1, "
        "clipping-norm = 1.0, num-sampled-clients = 5",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"would clip '1.running_mean' with the update"):
        resolve(make_config(**changes))
    assert resolve(make_config(**changes, local_arrays="1.*"))


BUFFERS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")


def models_of(strategy, **changes):
    """Return the models after each round, by name."""
    models = {}

    def keep(metrics, model):
        models[metrics.round] = {name: array.numpy().copy() for name, array in model.items()}

    train(on_round_end=keep, task=MODULE + "NORMALISED", strategy=strategy, **changes)
    return models


def test_buffers_are_the_mean_of_the_clients():
    """Without compression either way, the compressed strategy is FedAvg, buffers included."""
    arguments = "uplink = 'float32', downlink = 'float32', weights = 'samples'"
    few = {"num_server_rounds": 3, "local_steps": 5}
    ours = models_of("compressed", strategy_args=arguments, **few)
    theirs = models_of("fedavg", **few)
    assert_same_change(*(models.values() for models in (ours[3], theirs[3], theirs[0])))
    np.testing.assert_array_equal(ours[3][BUFFERS[2]], theirs[3][BUFFERS[2]])


def far_away(reply):
    """Move a reply's running mean by 1,000 in each of four channels: by 2,000 together."""
    own = "fedavg-strategies.buffers"
    record = own if own in reply.content else "arrays"
    arrays = reply.content[record]
    mean = Array(arrays[BUFFERS[0]].numpy() + np.float32(1000))
    reply.content[record] = ArrayRecord({**arrays, BUFFERS[0]: mean})
    return reply


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd", "stc"])
def test_norm_of_an_update_has_the_buffers_change_and_not_their_values(strategy):
    changes = {
        "task": MODULE + "NORMALISED", "strategy": strategy, "num_server_rounds": 14,
        "max_update_norm": 10.0, "learning_rate": 0.01, "batch_size": 100,
    }  # fmt: skip
    _, honest = train(**changes)
    assert not any(metrics.rejected for metrics in honest.history)
    assert honest.model[BUFFERS[2]].numpy() > 10, "the counter alone is above the bound"
    _, result = train(tamper=dict.fromkeys(range(5), far_away), **changes)
    reasons = [reason for metrics in result.history for reason in metrics.rejected.values()]
    assert len(reasons) > 10
    assert all(re.search("norm is (1999|2000)", reason) for reason in reasons)
