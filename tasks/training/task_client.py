"""`TaskClient`: one client's local work on any task: training, a full gradient, or a test."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle, islice, starmap
from typing import Any

import numpy as np
import torch
from flwr.client import NumPyClient
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task
from tasks.model_arrays import ModelArrays, state_of
from tasks.training.autograd_step import Call, make_step, mean_gradients, part_size
from tasks.training.evaluation import (
    BatchResult,
    Parameters,
    combine,
    draws_from_torch_only,
    evaluate,
    load_arrays,
)
from tasks.training.examples import Examples, call_in_bf16, call_model
from tasks.training.hidden_state import HiddenState
from tasks.training.layers import normalises_batches
from tasks.training.local_training import LocalTraining
from tasks.training.optimizers import Memory, OptimizerUpdate
from tasks.training.parts import part_count
from tasks.training.random_streams import local_seed, seeded, torch_generator
from tasks.training.sgd_update import WeightUpdate
from tasks.training.trained_weights import staying_trained
from tasks.training.transfers import staged, to_arrays

Config = dict[str, bool | bytes | float | int | str]


class TaskClient(NumPyClient):
    """One client's local work on any task.

    It keeps nothing from call to call. What an optimiser keeps, such as momentum, is the caller's
    to keep: `fit` and `gradient` take that of the call before and update it.

    Args:
        task: The learning problem.
        model: A network of the task, on the device to compute on; its weights are overwritten. Its
            fixed arrays are those to train with.
        train: The client's training examples, on the same device.
        test: The client's test examples; None where it has none.
        partition: The client's number, which with the seed and the round fixes its batches.
        arrays: The classes of the model's arrays; None finds them.
        hidden: What the network keeps outside its state dict, which each call begins with; None
            takes what it keeps now.

    Attributes:
        arrays: The classes of the model's arrays.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        train: Examples | None,
        test: Examples | None = None,
        *,
        partition: int = 0,
        arrays: ModelArrays | None = None,
        hidden: HiddenState | None = None,
    ) -> None:
        self.task, self.model, self.partition = task, model, partition
        self.arrays = ModelArrays.of(model) if arrays is None else arrays
        self._hidden = HiddenState(model) if hidden is None else hidden
        self._train, self._test = train, test

    def fit(
        self,
        parameters: Parameters,
        config: Config,
        memory: Memory | None = None,
        offset: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> tuple[Parameters, int, Config]:
        """Run local training, by default SGD (ClientUpdate of arXiv 1602.05629v4, Algorithm 1).

        The examples are split into batches of B once, in an order fixed by (seed, partition,
        round), and E epochs run over the same batches, as the algorithm is written; or, with
        "local-steps" > 0, that many steps, cycling through the batches. Batch normalisation needs
        two examples: with B > 2 a last batch of one takes another from the batch before it.

        Args:
            parameters: The arrays that travel, in the order of `ModelArrays.sent`.
            config: The keys of `LocalTraining`.
            memory: What the optimiser kept of its last call: with momentum the buffers v, by the
                parameter's name, else `OptimizerUpdate.kept`. What is not in it begins with zero;
                updated in place once all steps are done.
            offset: Added to the gradients of every step, by the parameter's name (SCAFFOLD's
                c - c_k); nothing to those that it does not name.

        Returns:
            The trained arrays, the number of local examples n_k, and {"train-loss": the mean
            batch loss over the local steps}.

        Raises:
            ValueError: The client has no training examples, the parameters are not the model's, or
                the config has no learning rate.
        """
        examples, settings = _required(self._train, "train"), LocalTraining.of(config)
        if not settings.learning_rate:
            raise ValueError("the config has no 'learning-rate'")
        self._load(parameters)
        size, limit = settings.batch_size, settings.local_steps
        order = torch_generator(settings.seed, "batches", self.partition, settings.server_round)
        if self.task.train is not None:
            metrics = self._own_training(examples.shuffled(order), settings, memory)
            return to_arrays(self._sent().values()), len(examples), metrics
        # Few steps need few examples; 0, all examples a step or no limit of steps, means all.
        chosen = examples.shuffled(order, limit * size or None)
        if self.task.augment is None:
            chosen = chosen.prepared()  # once, not for every step
        epoch = chosen.places(size, no_single=normalises_batches(self.model))
        steps = limit or len(epoch) * settings.local_epochs
        places = islice(cycle(epoch), steps)
        with self._seeded(settings, examples.device):
            batches = starmap(chosen.slice, places)
            loss = self.run_steps(batches, settings.rates(steps), settings, memory, offset)
        return to_arrays(self._sent().values()), len(examples), {"train-loss": loss}

    def gradient(
        self, parameters: Parameters, config: Config, memory: Memory | None = None
    ) -> tuple[Parameters, int, Config]:
        """Return the gradient of the mean loss over all local examples, for FedSGD.

        Args:
            parameters: As in `fit`.
            config: The keys of `LocalTraining`; weight decay adds lambda w to the gradient g, and
                with momentum v <- m v + g is returned instead of g.
            memory: As in `fit`.

        Returns:
            The gradient's arrays, in the order of ``parameters``, with buffers as the pass over the
            examples leaves them; n_k; and {"train-loss": the loss at ``parameters``}.

        Raises:
            ValueError: As for `fit`.
        """
        examples, settings = _required(self._train, "train"), LocalTraining.of(config)
        self._load(parameters)
        self._set_training_mode()
        named, count = self._trained_weights(), part_count(self.task, self.model)
        weights, size = list(named.values()), len(examples)
        if count is not None:
            with self._seeded(settings, examples.device):
                first, _ = examples.slice(0, 1)
            size = part_size(self.model, first, size)
        if size == len(examples):
            count = None
        with self._seeded(settings, examples.device), self._staying_trained(named):
            loss, found = mean_gradients(
                self.model,
                self.task.loss,
                weights,
                examples.batches(size),
                count,
                0 if count is None else int(count(len(examples), examples.all_targets())),
                _call(settings),
            )
        if settings.weight_decay:
            torch._foreach_add_(found, [w.detach() for w in weights], alpha=settings.weight_decay)
        by_name = dict(zip(named, found, strict=True))
        if settings.momentum:
            memory = {} if memory is None else memory
            for name, g in by_name.items():
                if name in memory:
                    v = staged(memory[name], g.device).to(g.device, non_blocking=True)
                    g.add_(v, alpha=settings.momentum)
            memory.update(zip(by_name, to_arrays(by_name.values()), strict=True))
        ordered = [
            by_name.get(name, array)  # a buffer as the pass over the examples left it
            for name, array in self._sent().items()
        ]
        return to_arrays(ordered), len(examples), {"train-loss": loss.item()}

    def evaluate(self, parameters: Parameters, config: Config) -> tuple[float, int, Config]:
        """Return the loss, the number of test examples, and the metrics by name.

        Raises:
            ValueError: As for `test`.
        """
        scores = combine(self.task.test_metrics(), self.test(parameters, config))
        return scores.loss, self.num_test_examples, {**scores.metrics}

    @property
    def num_test_examples(self) -> int:
        """How many test examples the client has."""
        return 0 if self._test is None else len(self._test)

    def test(self, parameters: Parameters, config: Config) -> list[BatchResult]:
        """Return the results of the model on the local test examples, batch by batch.

        Raises:
            ValueError: The client has no test examples, or the parameters are not the model's.
        """
        examples, seed = _required(self._test, "test"), LocalTraining.of(config).seed
        self._load(parameters)
        return evaluate(self.task, self.model, examples, seed, self.partition)

    def _own_training(
        self, examples: Examples, settings: LocalTraining, memory: Memory | None
    ) -> Config:
        """Train by the task's own loop; return its metrics."""
        assert self.task.train is not None
        self._set_training_mode()
        named = self._trained_weights()
        with self._seeded(settings, examples.device), self._staying_trained(named):
            found = self.task.train(
                self.model, examples, settings, {} if memory is None else memory
            )
        return {name: float(value) for name, value in found.items()}

    def run_steps(
        self,
        batches: Iterable[tuple[Any, Any]],
        learning_rates: Iterable[float],
        settings: LocalTraining,
        memory: Memory | None = None,
        offset: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> float:
        """Take one step of the optimiser per batch, from the model's current weights.

        Args:
            batches: Prepared inputs and their targets, at least one pair.
            learning_rates: The learning rate of every step, at least as many.
            settings: The optimiser and its arguments, momentum, weight decay, mu and clipping.
            memory: As in `fit`.
            offset: As in `fit`.

        Returns:
            The mean of the batches' losses.
        """
        self._set_training_mode()
        named = self._trained_weights()
        weights = list(named.values())
        memory = {} if memory is None else memory
        offsets = [_like(w, offset.get(name)) for name, w in named.items()] if offset else []
        update, keep = self._update(named, settings, memory, offsets)
        count = part_count(self.task, self.model)
        step = make_step(self.model, self.task.loss, weights, update, count, _call(settings))
        total = torch.zeros((), device=weights[0].device)
        steps = 0
        with self._staying_trained(named):
            for (inputs, targets), learning_rate in zip(batches, learning_rates, strict=False):
                total += step(inputs, targets, learning_rate)
                steps += 1
        kept = keep()
        memory.update(zip(kept, to_arrays(kept.values()), strict=True))
        return total.item() / steps

    @staticmethod
    def _update(
        named: Mapping[str, Tensor],
        settings: LocalTraining,
        memory: Memory,
        offsets: Sequence[Tensor],
    ) -> tuple[WeightUpdate, Callable[[], Mapping[str, Tensor]]]:
        """Return how gradients change the weights, and what returns what is kept of it."""
        if settings.optimizer:
            found = OptimizerUpdate(named, settings, offsets, memory)
            return found, found.kept if settings.keeps_memory else dict
        # torch.optim.SGD takes the same steps; but constructing one for each client and round costs
        # more than a small model's step, and the first construction imports torch's compiler (2 s).
        buffers = {
            name: _like(w, memory.get(name)) for name, w in named.items() if settings.momentum > 0
        }
        update = WeightUpdate(list(named.values()), settings, list(buffers.values()), offsets)
        return update, lambda: buffers

    def _seeded(
        self, settings: LocalTraining, device: torch.device
    ) -> AbstractContextManager[None]:
        """Seed the global random states, which augmentation and dropout draw from.

        The draws are fixed by seed, client and round; afterwards the states are restored.
        """
        own = local_seed(settings.seed, self.partition, settings.server_round)
        return seeded(own, device, only_torch=draws_from_torch_only(self.task, self.model))

    def _trained_weights(self) -> dict[str, Tensor]:
        """Return the weights that are trained, by name."""
        state = state_of(self.model)
        return {name: state[name] for name in self.arrays.trained}

    def _staying_trained(self, named: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        return staying_trained(self.model, self.arrays, named)

    def _sent(self) -> dict[str, Tensor]:
        """Return the model's own arrays that travel, by name."""
        state = state_of(self.model)
        return {name: state[name] for name in self.arrays.sent}

    def _load(self, parameters: Parameters) -> None:
        """Give the model the arrays that travel, and what it keeps beside them as it was at first.

        Raises:
            ValueError: They are not the model's.
        """
        names = self.arrays.sent
        if len(parameters) != len(names):
            raise ValueError(f"{len(names)} arrays of the model travel, got {len(parameters)}")
        self._hidden.restore()
        load_arrays(self.model, dict(zip(names, parameters, strict=True)))

    def _set_training_mode(self) -> None:
        if not self.model.training:  # a pass over all modules otherwise, for every step
            self.model.train()


def _call(settings: LocalTraining) -> Call:
    return call_in_bf16 if settings.precision == "bf16" else call_model


def _like(weight: Tensor, array: NDArray[np.generic] | None) -> Tensor:
    """Return the array in the weight's layout, which may be channels-last; zeros for None."""
    if array is None:
        return torch.zeros_like(weight)
    return torch.empty_like(weight).copy_(staged(array, weight.device), non_blocking=True)


def _required(examples: Examples | None, split: str) -> Examples:
    if examples is None or len(examples) == 0:
        raise ValueError(f"this client has no {split} examples")
    return examples
