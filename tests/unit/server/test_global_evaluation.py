import dataclasses

import numpy as np
import pytest
import torch

import tasks
from fedavg_app.config import parse_config
from fedavg_app.server import global_evaluation
from fedavg_app.server.global_evaluation import CentralEvaluation
from strategies.rounds.flower_arrays import to_record
from tasks.data.dataset import DataError, DataOptions, Dataset, Split

CONFIG = parse_config({"device": "cpu"})


def data(count):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 28, 28)).astype(np.uint8)
    split = Split(images, rng.integers(0, 10, count))
    return Dataset(split, split, DataOptions("noise"), "noise", "")


def arrays(seed):
    model = tasks.load("mnist-cnn").initial_model(seed)
    return to_record({name: array.numpy() for name, array in model.state_dict().items()})


@pytest.mark.parametrize(("room", "again"), [(2**30, []), (2**19, [125, 50])])
def test_test_examples_are_prepared_once_where_memory_allows(room, again, monkeypatch):
    monkeypatch.setattr(global_evaluation, "PREPARED_BYTES", room)
    prepared, task = [], tasks.load("mnist-cnn")

    def prepare(images):
        prepared.append(len(images))
        return task.prepare(images)

    evaluate = CentralEvaluation(dataclasses.replace(task, prepare=prepare), data(300), CONFIG)
    first = evaluate(arrays(1))
    prepared.clear()
    assert evaluate(arrays(2)) != first
    assert evaluate(arrays(1)) == first
    assert prepared == again * 2


def test_data_without_test_examples_are_refused():
    whole = data(3)
    empty = dataclasses.replace(whole, test=Split(whole.test.inputs[:0], whole.test.targets[:0]))
    with pytest.raises(DataError, match="noise has no test examples"):
        CentralEvaluation(tasks.load("mnist-cnn"), empty, CONFIG)(arrays(1))


def test_result_equals_that_of_the_whole_test_set_at_once():
    examples = data(300)
    task = tasks.load("mnist-cnn")
    scores = CentralEvaluation(task, examples, CONFIG)(arrays(1))
    with torch.no_grad():
        logits = task.initial_model(1).eval()(task.prepare(torch.from_numpy(examples.test.inputs)))
    targets = torch.from_numpy(examples.test.targets)
    assert scores.loss == pytest.approx(task.loss(logits, targets).item(), rel=1e-5)
    accuracy = (logits.argmax(dim=1) == targets).float().mean().item()
    assert scores.metrics == {"accuracy": pytest.approx(accuracy)}
