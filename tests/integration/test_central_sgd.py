import dataclasses

import pytest
import torch
from torch import nn

import tasks
from fedavg_app.callbacks.trackers import Plots
from fedavg_app.central_sgd import train_centrally
from fedavg_app.config import CentralConfig
from fedavg_app.errors import DivergedError
from tasks.data.dataset import DataOptions
from tasks.training.random_streams import torch_generator
from tests.support.rounding import assert_same_change
from tests.support.run_folders import assert_model, only_folder, read_history, read_summary

TASK = tasks.load("mnist-logistic")


def train(tmp_path, task=TASK, callbacks=(), **changes):
    values = {
        "task": "mnist-logistic", "data_source": "embedded", "num_server_rounds": 50,
        "evaluate_every": 20, "batch_size": 100, "learning_rate": 0.1, "target": "none",
        "run_dir": str(tmp_path / "runs"),
    }  # fmt: skip
    return train_centrally(CentralConfig(**{**values, **changes}), task, callbacks)


@pytest.mark.parametrize(
    ("momentum", "decay", "weight_decay"), [(0.0, 1.0, 0.0), (0.9, 0.97, 0.0), (0.9, 0.97, 0.01)]
)
def test_training_equals_torchs_sgd_over_shuffled_epochs(tmp_path, momentum, decay, weight_decay):
    result = train(
        tmp_path, num_server_rounds=90, momentum=momentum, learning_rate_decay=decay,
        weight_decay=weight_decay, seed=4,
    )  # fmt: skip
    data = TASK.dataset(DataOptions("embedded"))
    model = TASK.initial_model(4)
    changes = {"momentum": momentum, "weight_decay": weight_decay}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **changes)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)
    orders = [torch.randperm(4000, generator=torch_generator(4, "batches", n)) for n in (1, 2, 3)]
    for rows in torch.cat(orders).numpy().reshape(120, 100)[:90]:  # an epoch is 40 steps
        inputs = TASK.prepare(torch.from_numpy(data.train.inputs[rows]))
        targets = torch.from_numpy(data.train.targets[rows])
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        schedule.step()
    states = (result.model, model.state_dict(), TASK.initial_model(4).state_dict())
    assert_same_change(*([array.numpy() for array in state.values()] for state in states))


def test_results_are_those_of_a_run_whose_rounds_are_steps(tmp_path, capsys):
    result = train(tmp_path, learning_rate_decay=0.9, callbacks=[Plots])
    folder = only_folder(tmp_path / "runs")
    assert folder.name.split("-", 2)[2].startswith("mnist-logistic-central-")
    assert {path.name for path in folder.iterdir()} == {
        "best.safetensors", "config.json", "history.jsonl", "summary.json", "model.safetensors",
        "accuracy.png", "loss.png",
    }  # fmt: skip
    lines = read_history(folder)
    assert [line["round"] for line in lines] == [0, 20, 40, 50]
    assert lines[-1]["learning_rate"] == pytest.approx(0.1 * 0.9**49)  # of the last step
    assert all(line["accuracy"] is not None and line["bytes_up"] == 0 for line in lines)
    assert lines[-1]["accuracy"] > 0.8
    summary = read_summary(folder)
    assert (summary["status"], summary["rounds"]) == ("finished", 50)
    assert_model(folder, result.model)
    assert "central on mnist-logistic: all data in one place, B = 100" in capsys.readouterr().out


def test_training_whose_loss_is_not_finite_ends_as_diverged(tmp_path):
    # Its first step is beyond float32's range.
    broken = dataclasses.replace(
        TASK, loss=lambda logits, _: (logits**3).sum() * 1e20, in_parts=False
    )
    reason = "not finite after step 20; give a smaller learning-rate"
    with pytest.raises(DivergedError, match=reason):
        train(tmp_path, task=broken)
    summary = read_summary(only_folder(tmp_path / "runs"))
    assert summary["status"] == "diverged"
    assert "not finite" in summary["reason"]
