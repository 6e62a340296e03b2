"""`TaskClient`: a client's local work on any task: training, a full gradient, or a test."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from itertools import cycle, islice, starmap
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import Task
from tasks.model_arrays import Arrays, ModelArrays, load_arrays, state_of, to_arrays
from tasks.training.batch_size import efficient_batch_size, normalises_batches
from tasks.training.evaluation import BatchResult, Evaluator, combine
from tasks.training.examples import Examples, MapStyleExamples, count_predictions
from tasks.training.optimizer_steps import backward, take_steps, trained_weights
from tasks.training.optimizers import Memory, finite_arrays
from tasks.training.random_streams import derive_seed, seeded, torch_generator
from tasks.training.training_settings import TrainingSettings


class Result(NamedTuple):
    """What a client's work gives.

    Attributes:
        arrays: The arrays that travel, by name, in the order of `ModelArrays.sent`.
        num_examples: The number of local examples n_k.
        metrics: By name: "train-loss" and what a task's own loop returns.
    """

    arrays: Arrays
    num_examples: int
    metrics: dict[str, float]


class TaskClient:
    """A client's local work on any task.

    It keeps nothing from call to call. What an optimiser keeps, such as momentum, is the caller's
    to keep: `train` and `gradient` take that of the call before and update it.

    Args:
        task: The learning problem.
        network: Returns the network for a message, on the device to compute on; its fixed arrays
            are those to train with (`Task.networks`).
        train: The client's training examples, on the same device.
        test: The client's test examples; None if it has none.
        partition: The client's number, which with the seed and the round fixes its batches.
        arrays: The classes of the model's arrays; None finds them.

    Attributes:
        arrays: The classes of the model's arrays.
    """

    def __init__(
        self,
        task: Task,
        network: Callable[[], nn.Module],
        train: Examples | None,
        test: Examples | None = None,
        *,
        partition: int = 0,
        arrays: ModelArrays | None = None,
    ) -> None:
        self.task, self.partition = task, partition
        self.arrays = ModelArrays.of(network()) if arrays is None else arrays
        self._network, self._train, self._test = network, train, test

    def train(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        settings: TrainingSettings,
        memory: Memory | None = None,
        offset: Mapping[str, NDArray[np.generic]] | None = None,
    ) -> Result:
        """Run local training, by default SGD (ClientUpdate of arXiv 1602.05629v4, Algorithm 1).

        The examples are split into batches of B once, in an order fixed by (seed, partition,
        round), and E epochs run over the same batches, as the algorithm is written; or, with
        "local-steps" > 0, that many steps, cycling through the batches. Batch normalisation needs
        two examples: with B > 2 a last batch of one takes another from the batch before it.

        Args:
            arrays: The arrays that travel, by name.
            settings: The local work.
            memory: What the optimiser kept of its last call (`tasks.training.optimizers.Memory`).
                What is not in it begins anew; replaced in place once all steps are done. A state
                that is not finite is not kept.
            offset: Added to the gradients of every step, by the parameter's name (SCAFFOLD's
                c - c_k); nothing to those that it does not name.

        Returns:
            The trained arrays, and as "train-loss" the mean batch loss over the local steps.

        Raises:
            ValueError: The client has no training examples, the arrays are not the model's, or
                there is no learning rate.
        """
        examples = _required(self._train, "train")
        if not settings.learning_rate:
            raise ValueError("the config has no 'learning-rate'")
        model = self._loaded(arrays)
        size, limit = settings.batch_size, settings.local_steps
        order = torch_generator(settings.seed, "batches", self.partition, settings.server_round)
        if self.task.train is not None:
            memory = {} if memory is None else memory
            with self._seeded(settings, examples.device):
                found = self.task.train(model.train(), examples.shuffled(order), settings, memory)
            if not isinstance(found, Mapping):
                raise ValueError(f"train returned a {type(found).__name__}: return metrics by name")
            memory.update({name: np.asarray(value) for name, value in memory.items()})
            metrics = {name: float(value) for name, value in found.items()}
            return Result(to_arrays(self._sent(model)), len(examples), metrics)
        # Few steps need few examples; 0, all examples a step or no limit of steps, means all.
        chosen = examples.shuffled(order, limit * size or None)
        if self.task.augment is None:
            chosen = chosen.prepared()  # once, not for every step
        single = size > 2 and len(chosen) % size == 1
        epoch = chosen.places(size, no_single=single and normalises_batches(model))
        steps = limit or len(epoch) * settings.local_epochs
        places = islice(cycle(epoch), steps)
        with self._seeded(settings, examples.device):
            batches = starmap(chosen.slice, places)
            loss = take_steps(
                self.task, model, self.arrays, batches, settings.rates(steps), settings,
                memory, offset,
            )  # fmt: skip
        return Result(to_arrays(self._sent(model)), len(examples), {"train-loss": loss})

    def fine_tuned(
        self, arrays: Mapping[str, NDArray[np.generic]], settings: TrainingSettings
    ) -> Arrays:
        """Return the arrays after "evaluate-after-steps" steps of `train`, which keep no memory.

        Args, Raises: As for `train`.
        """
        steps = {"local_steps": settings.evaluate_after_steps}
        return self.train(arrays, settings.model_copy(update=steps)).arrays

    def gradient(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        settings: TrainingSettings,
        memory: Memory | None = None,
    ) -> Result:
        """Return the gradient of the mean loss over all local examples, for FedSGD.

        Args:
            arrays: As in `train`.
            settings: Weight decay adds lambda w to the gradient g, and with momentum
                v <- m v + g is returned instead of g.
            memory: As in `train`.

        Returns:
            The gradient's arrays, and buffers as the pass over the examples leaves them; as
            "train-loss" the loss at ``arrays``.

        Raises:
            ValueError: As for `train`.
        """
        examples = _required(self._train, "train")
        model = self._loaded(arrays).train()
        named = trained_weights(model, self.arrays)
        size, whole = len(examples), None
        with self._seeded(settings, examples.device):
            if self.task.in_parts:
                first, _ = examples.slice(0, 1)
                size = min(size, efficient_batch_size(self.task, model, first))
        if size < len(examples):
            whole = int(count_predictions(len(examples), examples.all_targets()))
        with self._seeded(settings, examples.device):
            loss = backward(self.task, model, examples.batches(size), settings, whole)
        found = {}
        for name, w in named.items():
            found[name] = torch.zeros_like(w) if w.grad is None else w.grad.to_dense()
            if settings.weight_decay and w.grad is not None:
                found[name].add_(w.detach(), alpha=settings.weight_decay)
            w.grad = None
        if settings.momentum:
            memory = {} if memory is None else memory
            for name, g in found.items():
                if name in memory:
                    v = torch.tensor(memory[name], device=g.device)
                    g.add_(v, alpha=settings.momentum)  # rounded once, unlike SGDUpdate's
            memory.clear()
            memory.update(finite_arrays(found))
        # A buffer is as the pass over the examples left it.
        arrays_sent = to_arrays(self._sent(model) | found)
        return Result(arrays_sent, len(examples), {"train-loss": loss.item()})

    def training_loss(
        self, arrays: Mapping[str, NDArray[np.generic]], seed: int
    ) -> tuple[int, float]:
        """Return the number of training examples, and the model's mean loss on them.

        Args, Raises: As for `test`, of the training examples.
        """
        examples = _required(self._train, "train")
        return len(examples), combine({}, self._tested(examples, arrays, seed)).loss

    @property
    def num_test_examples(self) -> int:
        """How many test examples the client has."""
        return 0 if self._test is None else len(self._test)

    def test(self, arrays: Mapping[str, NDArray[np.generic]], seed: int) -> list[BatchResult]:
        """Return the results of the model on the local test examples, batch by batch.

        Args:
            arrays: As in `train`.
            seed: The run's.

        Raises:
            ValueError: The client has no test examples, or the arrays are not the model's.
        """
        return self._tested(_required(self._test, "test"), arrays, seed)

    def _tested(
        self, examples: Examples, arrays: Mapping[str, NDArray[np.generic]], seed: int
    ) -> list[BatchResult]:
        """Return the results of the model on some examples, batch by batch."""
        evaluator = Evaluator(self.task, partial(self._loaded, arrays), seed, self.partition)
        model = evaluator.network() if self.task.shared_model else None
        first, _ = examples.slice(0, 1)
        places = examples.places(efficient_batch_size(self.task, model, first))
        return [evaluator.batch(start, *examples.slice(start, end)) for start, end in places]

    def _seeded(
        self, settings: TrainingSettings, device: torch.device
    ) -> AbstractContextManager[None]:
        """Seed the global random states, which augmentation and dropout draw from.

        The draws are fixed by seed, client and round; afterwards the states are restored.
        """
        own = derive_seed(settings.seed, "local", self.partition, settings.server_round)
        # Transforms of a map-style training set may draw from any of them.
        only_torch = self.task.shared_model and not isinstance(self._train, MapStyleExamples)
        return seeded(own, device, only_torch=only_torch)

    def _sent(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the trained model's own arrays that travel, by name.

        Raises:
            ValueError: Its code has changed which arrays are trained.
        """
        state, arrays = state_of(model), self.arrays
        for name in arrays.trained + arrays.fixed:
            if state[name].requires_grad != (name in arrays.trained):
                change = "is trained now" if state[name].requires_grad else "is no longer trained"
                fix = "model() must return it as it is trained for the whole run"
                raise ValueError(f"array {name!r} {change}: the model's code changed it; {fix}")
        return {name: state[name] for name in arrays.sent}

    def _loaded(self, arrays: Mapping[str, NDArray[np.generic]]) -> nn.Module:
        """Return a network with the arrays that travel.

        Raises:
            ValueError: They are not the model's.
        """
        if different := set(arrays).symmetric_difference(self.arrays.sent):
            names = ", ".join(sorted(different))
            raise ValueError(f"the arrays sent are not those of {self.task.name}: {names}")
        model = self._network()
        load_arrays(model, arrays)
        return model


def _required(examples: Examples | None, split: str) -> Examples:
    if examples is None or len(examples) == 0:
        raise ValueError(f"this client has no {split} examples")
    return examples
