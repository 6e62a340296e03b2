"""A client process's task, model and examples.

Apart from `fedavg_app.client_app` because it imports torch, which takes seconds: on a SuperNode
every message starts a new process, and a process that only answers a query need not wait for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord

import tasks
from fedavg_app.client_settings import PARTITION_ID, THREADS, ServerFacts, own_data, run_config
from fedavg_app.config import RunConfig, with_clients
from fedavg_app.partitioning import DataDigests, partition
from fedavg_app.partitioning.partitioner import Rows
from strategies.rounds.flower_arrays import to_record
from strategies.rounds.local_arrays import matching
from tasks.data.dataset import DataOptions, Dataset
from tasks.model_arrays import ModelArrays, fixed_fingerprint, read_arrays
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient


@dataclass(frozen=True)
class ClientProcess:
    """What a process keeps for the clients that it runs.

    Attributes:
        client: Makes the task client of a partition.
        fixed_arrays: The fingerprint of the model's fixed arrays.
        local_arrays: The initial values of the arrays that stay on the client.
        digests: Of the data and of their partition.
    """

    client: Callable[[int], TaskClient]
    fixed_arrays: str
    local_arrays: ArrayRecord
    digests: DataDigests


def task_client(
    node_config: Mapping[str, Any], run_settings: Mapping[str, Any], message: Mapping[str, Any]
) -> TaskClient:
    """Return the task client of a node (`fedavg_app.client_settings`).

    Args:
        node_config: The node's config.
        run_settings: The run config.
        message: The config of the server's message.

    Raises:
        ConfigError: The data cannot be split as the run config says.
        DataError: The data set is not available.
        ValueError: The model's fixed arrays, which do not travel, are not those of the server.
    """
    process = client_process(node_config, run_settings, message)
    client = process.client(int(node_config[PARTITION_ID]))
    told, here = ServerFacts.of(message).fixed_arrays, process.fixed_arrays
    if told != here:
        raise ValueError(
            f"the fixed arrays of {client.task.name} here ({here or 'none'}) are "
            f"not the server's ({told or 'none'}): give both the same pretrained weights"
        )
    return client


def client_process(
    node_config: Mapping[str, Any], run_settings: Mapping[str, Any], message: Mapping[str, Any]
) -> ClientProcess:
    """Return what this process keeps for a node and those like it; as for `task_client`."""
    # One thread per client: as many clients as cores run at once, and the order of summation,
    # hence every bit of the result, does not depend on the machine.
    torch.set_num_threads(int(node_config.get(THREADS, 1)))
    directory, facts = own_data(node_config), ServerFacts.of(message)
    return _client_process(
        with_clients(run_config(run_settings), facts.num_clients),
        DataOptions(directory=directory, own=True) if directory else facts.data_options,
        shared=not directory,
    )


@lru_cache(maxsize=2)
def load_dataset(task: str, options: DataOptions) -> Dataset:
    """Return a task's data set, the same object each time: a process has one split of it."""
    return tasks.load(task).dataset(options)


def own_dataset(directory: str, run_settings: Mapping[str, Any]) -> Dataset:
    """Return the data of a node that has its own directory.

    Raises:
        DataError: They are missing, or are not data of the run's task.
    """
    task = tasks.load(run_config(run_settings).task)
    return task.dataset(DataOptions(directory=directory, own=True))


@lru_cache(maxsize=2)
def _client_process(config: RunConfig, options: DataOptions, *, shared: bool) -> ClientProcess:
    """Return what a process keeps.

    ``shared`` data are split by the run's partition, others belong to a device.
    """
    task = tasks.load(config.task)
    # A device's own data change with time.
    data = load_dataset(config.task, options) if shared else task.dataset(options)
    device = config.torch_device
    rows = partition(data, "train", config) if shared else None
    digests = DataDigests.of(data, rows)

    def examples(name: str, rows: Rows | None) -> Callable[[int], Examples]:
        """Return what returns a client's examples; making all takes long and much memory."""
        training = name == "train"
        stored = data.train if training else data.test
        every = task.examples(stored, device, training=training)
        if rows is None:
            return lambda _: every
        places, offsets = torch.from_numpy(rows.examples).to(device), rows.offsets
        return lambda client: replace(every, rows=places[offsets[client] : offsets[client + 1]])

    model = task.initial_model(config.seed)
    arrays = ModelArrays.of(model)
    fixed_arrays = fixed_fingerprint(model, arrays)
    local = tuple(matching(arrays.sent, config.local_patterns))
    local_arrays = to_record(read_arrays(model, local))
    network = task.networks(config.seed, device)
    train, test = examples("train", rows), None
    if config.fraction_evaluate:
        test = examples("test", partition(data, "test", config) if shared else None)

    def client(number: int) -> TaskClient:
        tested = None if test is None else test(number)
        return TaskClient(task, network, train(number), tested, partition=number, arrays=arrays)

    return ClientProcess(client, fixed_arrays, local_arrays, digests)
