"""Measures what it costs to average LoRA's A and B apart: the mean of products is another one.

Clients train the adapters of a run for a round more. Then their mean is taken in two ways: of A and
of B, as strategies do, and of the products B A, which would take as many bytes as the base.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from torch import Tensor, nn

import tasks
from tasks.base import Task
from tasks.data.dataset import DataOptions
from tasks.model_arrays import Arrays, ModelArrays, load_arrays, read_arrays
from tasks.training.evaluation import combine, evaluate
from tasks.training.examples import Examples
from tasks.training.local_training import TaskClient
from tasks.training.training_settings import TrainingSettings

CPU = torch.device("cpu")


def layers(model: nn.Module) -> dict[str, Any]:
    """Return the layers with adapters, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


@torch.no_grad()
def products(model: nn.Module, arrays: Arrays) -> dict[str, Tensor]:
    """Return what these adapters add to the base's weights, by layer."""
    load_arrays(model, arrays)
    return {
        name: layer.get_delta_weight("default").clone() for name, layer in layers(model).items()
    }


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Return the norm of the difference of all layers."""
    return float(sum(float((a[name] - b[name]).square().sum()) for name in a) ** 0.5)


def trained(
    task: Task, model: nn.Module, start: Arrays, arguments: Any
) -> list[tuple[Arrays, int]]:
    """Return the adapters of each client after its steps, and its number of examples."""
    data = task.dataset(DataOptions())
    stored = task.examples(data.train, CPU, training=True)
    owners = np.asarray(data.train.owners)
    chosen = np.random.default_rng(arguments.seed).permutation(owners.max() + 1)
    settings = TrainingSettings(
        learning_rate=task.learning_rate,
        optimizer=task.optimizer,
        local_steps=arguments.local_steps,
        batch_size=arguments.batch_size,
        seed=arguments.seed,
        server_round=1,
    )
    found = []
    for owner in map(int, chosen[: arguments.clients]):
        rows = torch.from_numpy(np.flatnonzero(owners == owner))
        own = Examples(stored.inputs, stored.targets, stored.prepare, rows)
        client = TaskClient(task, lambda: model, own, partition=owner)
        found.append(client.train(start, settings)[:2])
    return found


def main() -> None:
    """Print the distance of the two means, and the perplexity of both models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder of a run of a LoRA task by owners")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--local-steps", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    run = json.loads((arguments.run / "config.json").read_text())
    task = tasks.load(run["task"])
    model = task.initial_model(run["seed"])
    model.load_state_dict(load_file(arguments.run / "model.safetensors"))
    start = read_arrays(model, ModelArrays.of(model).sent)
    clients = trained(task, model, start, arguments)
    total = sum(number for _, number in clients)
    mean = {
        name: sum(arrays[name] * (number / total) for arrays, number in clients) for name in start
    }
    own = [(products(model, arrays), number / total) for arrays, number in clients]
    exact = {name: sum(product[name] * share for product, share in own) for name in own[0][0]}
    before, apart = products(model, start), products(model, mean)
    test = task.examples(task.dataset(DataOptions()).test, CPU)

    def perplexity(arrays: Arrays, added: dict[str, Tensor] | None = None) -> float:
        """Return that of these adapters, or of what is added to the base in their place."""
        load_arrays(model, arrays)
        with torch.no_grad():
            for name, layer in layers(model).items() if added else ():
                layer.get_base_layer().weight.add_(added[name] - apart[name])
        return combine(task.test_metrics(), evaluate(task, model, test, 0, 0)).metrics["perplexity"]

    error = distance(exact, apart) / distance(exact, before)
    print(f"distance of the means, of the change of their product: {error:.4f}")
    print(f"perplexity before: {perplexity(start):.5f}")
    print(f"mean of A and of B: {perplexity(mean):.5f}")
    print(f"mean of the products: {perplexity(mean, exact):.5f}")


if __name__ == "__main__":
    main()
