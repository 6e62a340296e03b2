"""A client process's task, model and examples.

Apart from `fedavg_app.client_app` because it imports torch, which takes seconds: on a SuperNode
every message starts a new process, and one that only answers a query need not wait for it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

import tasks
from fedavg_app.config import RunConfig, parse_config
from fedavg_app.device import pick_device
from fedavg_app.node_config import PARTITION_ID, THREADS, own_data
from fedavg_app.partitioning.partitions import partition
from tasks.base import on_device
from tasks.data.dataset import DataOptions, Dataset
from tasks.model_arrays import ModelArrays, fixed_fingerprint
from tasks.training.examples import Examples
from tasks.training.hidden_state import HiddenState
from tasks.training.local_training import Config, TaskClient


def task_client(
    node_config: Mapping[str, Any], run_config: Mapping[str, Any], config: Config
) -> TaskClient:
    """Return the task client of one node.

    Args:
        node_config: Names its partition; optionally its threads and the directory of its own data.
        run_config: See `RunConfig`.
        config: The config of the server's message: which data set exactly to load, and the number
            of clients where the run config has none.

    Raises:
        ConfigError: The data cannot be split as the run config says.
        DataError: The data set is not available.
        ValueError: The model's fixed arrays, which do not travel, are not those of the server.
    """
    # One thread per client: as many clients as cores run at once, and the order of summation,
    # hence every bit of the result, does not depend on the machine.
    torch.set_num_threads(int(node_config.get(THREADS, 1)))
    own = own_data(node_config)
    options = DataOptions(str(config["data-source"]), str(config.get("data-dir", "")))
    if "num-clients" in config:
        run_config = {**run_config, "num-clients": config["num-clients"]}
    clients, fingerprint = _task_clients(
        _run_config(tuple(run_config.items())),
        DataOptions(directory=own, own=True) if own else options,
        shared=not own,
    )
    client, told = clients[int(node_config[PARTITION_ID])], str(config.get("fixed-arrays", ""))
    if told != fingerprint:
        raise ValueError(
            f"the fixed arrays of {client.task.name} here ({fingerprint or 'none'}) are "
            f"not the server's ({told or 'none'}): give both the same pretrained weights"
        )
    return client


def own_dataset(directory: str, run_config: Mapping[str, Any]) -> Dataset:
    """Return the data of a node that has a directory of its own.

    Raises:
        DataError: They are not there, or are not those of the run's task.
    """
    task = tasks.load(_run_config(tuple(run_config.items())).task)
    return task.dataset(DataOptions(directory=directory, own=True))


@lru_cache(maxsize=2)
def _task_clients(
    config: RunConfig, options: DataOptions, *, shared: bool
) -> tuple[list[TaskClient], str]:
    """Return all partitions' task clients, and the fingerprint of the model's fixed arrays.

    They train one and the same model, one after the other. ``shared`` data are split by the run's
    partition, others are one device's.
    """
    task = tasks.load(config.task)
    data = task.dataset(options)
    device = pick_device(config.device)

    def split(name: str) -> list[Examples]:
        training = name == "train"
        stored = data.train if training else data.test
        examples = Examples.stored(task, stored, device, training=training)
        if not shared:
            return [examples] * config.num_clients
        rows = (torch.from_numpy(part).to(device) for part in partition(data, name, config))
        return [replace(examples, rows=one) for one in rows]

    model = task.initial_model(config.seed)
    arrays = ModelArrays.of(model)
    fingerprint = fixed_fingerprint(model, arrays)
    model = on_device(model, device)
    hidden = HiddenState(model)
    train = split("train")
    tests = split("test") if config.fraction_evaluate else [None] * len(train)
    clients = [
        TaskClient(task, model, own, test, partition=number, arrays=arrays, hidden=hidden)
        for number, (own, test) in enumerate(zip(train, tests, strict=True))
    ]
    return clients, fingerprint


@lru_cache(maxsize=2)
def _run_config(items: tuple[tuple[str, Any], ...]) -> RunConfig:
    return parse_config(dict(items))
