"""Adapters of a language model: what travels, what is saved, and what perplexity is."""

import importlib
import math
import sys

import numpy as np
import pytest
import torch

import tasks
from fedavg_app.links import Devices, load_fleet
from fedavg_app.partitioning import partition
from tasks.checking import TaskError
from tasks.data.dataset import DataOptions
from tasks.lora import adapted, lora_task, save_adapter
from tasks.model_arrays import ModelArrays, read_arrays
from tasks.training.local_training import TaskClient
from tests.integration.test_example_tasks import start
from tests.support.example_tasks import EXAMPLES
from tests.support.in_process import make_config, told_by
from tests.support.run_folders import only_folder, read_history
from tests.support.task_clients import fit

# Besides the page's task: square weights, so that A and B have as many entries.
SQUARE = """
from lora_task import base, load
from tasks.lora import lora_task

ARGUMENTS = {"r": 4, "target_modules": r".*attn\\.c_proj", "fan_in_fan_out": True}
TASK = lora_task("whole", base=base, lora=ARGUMENTS, dataset=load, learning_rate=0.01)
FROZEN = lora_task(
    "frozen", base=base, lora=ARGUMENTS, dataset=load, learning_rate=0.01, freeze_a=True
)
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The module of the page, which the runs of a test import by its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    pages = {name: EXAMPLES[f"{name}.py"] for name in ("lora_task", "ranks")}
    for name, content in {**pages, "square_task": SQUARE}.items():
        (tmp_path / f"{name}.py").write_text(content)
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("lora_task")


def train(folder, task="lora_task:TASK", **changes):
    start(folder, "lora", task=task, num_server_rounds=2, **changes)
    return only_folder(folder)


def whole_test_set(page):
    """Return the arguments of a model of transformers, with labels, for all test examples."""
    test = page.load(DataOptions()).test
    inputs = {name: torch.tensor(array).long() for name, array in test.inputs.items()}
    return inputs, torch.tensor(test.targets)


def test_only_adapters_are_sent(page, tmp_path):
    result = start(tmp_path / "runs", "lora", num_server_rounds=2, local_steps=1)
    model = page.TASK.initial_model(1)
    arrays = ModelArrays.of(model)
    assert all("lora_" in name for name in arrays.sent)
    entries = sum(array.size for array in read_arrays(model, arrays.sent).values())
    history = read_history(only_folder(tmp_path / "runs"))
    assert entries == sum(
        parameter.numel() for parameter in model.parameters() if parameter.requires_grad
    )
    for line in history[1:]:
        assert line["theory_bits_up"] == line["theory_bits_down"] == 5 * 32 * entries
        overhead = 5 * len(arrays.sent) * 250  # heads and names of the arrays
        assert 5 * 4 * entries < line["bytes_up"] < 5 * 4 * entries + overhead
    for name, before in read_arrays(model, arrays.names).items():
        assert np.array_equal(result.model[name].numpy(), before) == (name not in arrays.sent)


@pytest.mark.parametrize(
    "task", ["lora_task:TASK", pytest.param("square_task:FROZEN", marks=pytest.mark.slow)]
)
def test_peft_loads_what_a_run_saved_and_finds_its_perplexity(task, page, tmp_path):
    from peft import PeftModel  # it takes seconds, also in pytest's other processes if at the top

    folder = train(tmp_path / "runs", task)
    save_adapter(folder, tmp_path / "adapter")
    model = PeftModel.from_pretrained(page.base(), tmp_path / "adapter").eval()
    inputs, targets = whole_test_set(page)
    with torch.no_grad():
        outputs = model(**inputs, labels=targets)
    found = read_history(folder)[-1]
    assert found["test_metrics"]["perplexity"] == pytest.approx(math.exp(outputs.loss), rel=1e-5)
    # The exponential of the mean over all predicted tokens, in float64.
    following = targets[:, 1:][targets[:, 1:] >= 0]
    logits = outputs.logits[:, :-1][targets[:, 1:] >= 0].double()
    loss = torch.nn.functional.cross_entropy(logits, following).item()
    assert found["test_metrics"]["perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)
    assert found["test_loss"] == pytest.approx(loss, rel=1e-5)
    untrained = read_history(folder)[0]["test_metrics"]["perplexity"]
    assert found["test_metrics"]["perplexity"] < 0.9 * untrained


def test_base_may_be_a_folder_and_lora_a_config(page, tmp_path):
    from peft import LoraConfig

    base = page.base()
    base.save_pretrained(tmp_path / "base")
    config = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
    arguments = {"dataset": page.load, "learning_rate": 0.01}
    task = lora_task("folder", base=tmp_path / "base", lora=config, **arguments)
    first, again = task.initial_model(1), task.initial_model(1)
    for name, array in first.state_dict().items():
        assert torch.equal(array, again.state_dict()[name])
    assert first.peft_config["default"].base_model_name_or_path == str(tmp_path / "base")
    assert config.base_model_name_or_path is None  # each model has its own
    unloaded = first.unload().state_dict()
    assert all(torch.equal(unloaded[name], array) for name, array in base.state_dict().items())


@pytest.mark.slow
def test_clients_own_tests_give_the_perplexity_of_all_their_tokens(page, tmp_path):
    last = read_history(train(tmp_path / "runs", fraction_evaluate=1.0, local_steps=1))[-1]
    together = last["client_metrics"]["perplexity"]
    assert together == pytest.approx(last["test_metrics"]["perplexity"], rel=1e-6)
    assert together < last["client_metrics"]["perplexity-p90"]


@pytest.mark.slow
def test_ffa_keeps_a_and_halves_the_bytes(page, tmp_path):
    whole, frozen = (
        read_history(train(tmp_path / name, f"square_task:{name}", local_steps=1))[-1]["total"]
        for name in ("TASK", "FROZEN")
    )
    for way in ("up", "down"):
        assert frozen[f"theory_bits_{way}"] == whole[f"theory_bits_{way}"] / 2
        assert frozen[f"bytes_{way}"] < 0.55 * whole[f"bytes_{way}"]
    arrays = ModelArrays.of(tasks.load("square_task:FROZEN").initial_model(1))
    assert arrays.sent
    assert all("lora_B" in name for name in arrays.sent)


def test_clients_of_lower_ranks_train_adapters_of_these_ranks(page, tmp_path):
    """Those of PEFT with a lower rank, whose changes the server's mean takes as zero beyond it."""
    keys = {"num_clients": 3, "num_server_rounds": 1, "local_steps": 3, "seed": 1}
    given = {"strategy_args": "weights = 'uniform'", "links": "phones", "round_timeout": 600}
    result = start(tmp_path / "runs", "lora", client_mods="ranks:mod", **keys, **given)
    task, config = page.TASK, make_config(task="lora_task:TASK", partition="iid", **keys)
    data = task.dataset(DataOptions())
    parts = partition(data, "train", config)
    model = task.initial_model(1)
    sent = read_arrays(model, ModelArrays.of(model).sent)
    told = {**told_by(config, task, data), "server-round": 1, "learning-rate": 0.01}
    told |= {"batch-size": 20, "local-steps": 3}
    total = {name: np.zeros(array.shape) for name, array in sent.items()}
    devices = Devices(load_fleet("phones"), 3, 1)
    ranks = [{"4G": 1, "5G": 2, "Wi-Fi": 4}[devices[number].name] for number in range(3)]
    assert sorted(ranks) == [1, 2, 4]
    for number, rank in enumerate(ranks):
        lora = {"r": rank, "lora_alpha": 4 * rank, "target_modules": ["c_attn", "c_proj"]}
        own = lora_task(
            "own", base=page.base, lora={**lora, "fan_in_fan_out": True}, dataset=page.load,
            learning_rate=0.01,
        )  # fmt: skip
        examples = own.examples(data.train.part(parts[number]), torch.device("cpu"))
        client = TaskClient(own, own.model, examples, partition=number)
        kept = {
            name: (slice(rank),) if "lora_A" in name else (slice(None), slice(rank))
            for name in sent
        }
        given = [sent[name][kept[name]] for name in client.arrays.sent]
        trained, _, _ = fit(client, given, told)
        for name, array, before in zip(client.arrays.sent, trained, given, strict=True):
            assert not np.array_equal(array, before)
            total[name][kept[name]] += array - before
    for name, before in sent.items():
        expected = before + total[name] / 3
        np.testing.assert_allclose(result.model[name].numpy(), expected, rtol=1e-4, atol=1e-6)


def test_errors_say_what_to_do(page, tmp_path, monkeypatch):
    from peft import IA3Config

    with pytest.raises(ValueError, match="freeze_a is of LoRA"):
        adapted(page.base, IA3Config(), freeze_a=True)
    start(tmp_path / "other", "wine", task="mnist-logistic", num_server_rounds=1, local_steps=1)
    with pytest.raises(ValueError, match="'mnist-logistic' has no adapters"):
        save_adapter(only_folder(tmp_path / "other"), tmp_path / "adapter")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(TaskError, match=r"needs peft, which is missing; install it with: pip inst"):
        page.TASK.initial_model(1)
