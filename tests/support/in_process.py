"""Federated training on real data in one process: the real loop, strategy and ClientApp."""

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord

from fedavg_app.client_settings import ServerFacts, client_settings
from fedavg_app.config import RunConfig, kebab
from fedavg_app.optimizer_choice import resolve_work
from fedavg_app.partitioning import partition
from fedavg_app.results.history import TrainingResult
from fedavg_app.server.client_sampling import Facts
from fedavg_app.server.global_evaluation import CentralEvaluation
from fedavg_app.server.node_registry import NodeRegistry
from fedavg_app.server.preparation import prepare, resolve
from fedavg_app.server.training_loop import TrainingLoop
from fedavg_app.server_app import run
from fedavg_app.training_plan import make_plan
from tasks.training.local_training import TaskClient
from tests.support.local_grid import LocalGrid
from tests.support.task_clients import fit

DEFAULTS = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 20, "fraction-train": 0.25,
    "num-server-rounds": 4, "learning-rate": 0.05, "partition": "shards",
}  # fmt: skip


def make_config(**changes) -> RunConfig:
    return RunConfig(**{**DEFAULTS, **{kebab(name): value for name, value in changes.items()}})


def run_here(
    config: RunConfig, num_nodes: int = 0, tamper=None, callbacks=(), grid_type=LocalGrid
) -> TrainingResult:
    """Run the whole server app with this many nodes, by default as many as there are clients."""
    prepared = prepare(config)  # without an identity, as in a run whose grid is not there yet
    grid = grid_type(config.model_dump(by_alias=True), num_nodes or config.num_clients, tamper)
    return run(grid, prepared, CentralEvaluation, callbacks)


def model_without(clients, folder, **keys) -> ArrayRecord:
    """Return the model of a run without the training replies of these clients.

    All clients take part in every round; the keys are spelt as on the command line.
    """

    def without_examples(reply):
        reply.content["metrics"]["num-examples"] = 0
        return reply

    common = {"task": "mnist-logistic", "data-source": "embedded", "fraction-train": 1.0}
    config = RunConfig(**{**common, "run-dir": str(folder / "expected"), **keys})
    result = run_here(config, tamper=dict.fromkeys(clients, without_examples))
    assert {len(metrics.rejected) for metrics in result.history[1:]} == {len(clients)}
    return result.model


def told_by(config: RunConfig, task, data, fixed_arrays="") -> ConfigRecord:
    """Return what every message of a run tells its clients."""
    options = data.options
    facts = ServerFacts(options.source, options.directory, 0, fixed_arrays)
    return client_settings(resolve_work(config, task), facts)


def run_loop(
    grid: LocalGrid, config: RunConfig, components, on_round_end=lambda *_: None
) -> TrainingResult:
    """Run the training loop with what `resolve` returned, and nothing around it."""
    task, model, strategy = components.task, components.model, components.strategy
    data = task.dataset(config.data_options)
    nodes = NodeRegistry(grid, config.num_clients)
    nodes.wait_for_start()
    history, models = [], []

    def record(metrics, model):
        history.append(metrics)
        models.append(model)
        on_round_end(metrics, model)

    rows, told = partition(data, "train", config), told_by(config, task, data, model.fingerprint)
    evaluation = CentralEvaluation(task, data, config)
    TrainingLoop(
        grid,
        strategy,
        model.sent,
        nodes,
        config,
        make_plan(config, task),
        told,
        evaluation,
        task.test_metrics(),
        record,
        history,
        facts=Facts(lambda client: len(rows[client])),
    ).run()
    return TrainingResult(history, models[-1])


def train(
    tamper=None, grid_type=LocalGrid, on_round_end=lambda *_: None, **changes
) -> tuple[LocalGrid, TrainingResult]:
    """Run the loop with `make_config(**changes)`; return the grid and the result."""
    config = make_config(**changes)
    grid = grid_type(config.model_dump(by_alias=True), config.num_clients, tamper)
    return grid, run_loop(grid, config, resolve(config), on_round_end)


def round_of_algorithm_1(task, weights, splits, told) -> list[np.ndarray]:
    """Return the weighted mean of the clients' models, by client trained on these examples."""
    total, mean = sum(map(len, splits.values())), [np.zeros(array.shape) for array in weights]
    for k, split in splits.items():
        examples = task.examples(split, torch.device("cpu"))
        client = TaskClient(task, task.model, examples, partition=k)
        trained, count, _ = fit(client, weights, told)
        assert count == len(split)
        mean = [m + count / total * array for m, array in zip(mean, trained, strict=True)]
    return [array.astype(np.float32) for array in mean]


def network_with(task, arrays) -> torch.nn.Module:
    """Return the task's network with the arrays of a run, to be tested by torch alone."""
    network = task.model().eval()
    network.load_state_dict({name: torch.tensor(array.numpy()) for name, array in arrays.items()})
    return network


def training_loss(task, data, rows, model) -> float:
    """Return the mean cross-entropy of a model on some training examples, by torch alone."""
    network = network_with(task, model)
    inputs = task.prepare(torch.tensor(np.array(data.train.inputs[rows])))
    targets = torch.tensor(np.array(data.train.targets[rows]))
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(network(inputs), targets.long()))


def model_arrays(result: TrainingResult) -> list[np.ndarray]:
    return [array.numpy() for array in result.model.values()]


def same_model(a: TrainingResult, b: TrainingResult) -> bool:
    """Return whether two trainings ended in the same model, bit for bit."""
    pairs = zip(model_arrays(a), model_arrays(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)
