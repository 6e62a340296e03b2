"""How one client learns any task: local SGD, a full gradient, an evaluation."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice, repeat

import numpy as np
import torch
from flwr.client import NumPyClient
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.base import (
    Examples,
    Parameters,
    Task,
    evaluate,
    load_arrays,
    number_of_predictions,
)
from tasks.seeds import integer, torch_stream

Config = dict[str, bool | bytes | float | int | str]
# The momentum buffer of every parameter, by its name in the model.
Velocity = dict[str, NDArray[np.generic]]
# As many examples at once as a full-batch gradient holds in memory; the sum is the same.
GRADIENT_BATCH = 500


class TaskClient(NumPyClient):
    """One client's local work on any task: SGD, a full gradient, or an evaluation.

    It remembers nothing from call to call. What momentum needs to remember is the caller's to
    keep: `fit` and `gradient` take the ``velocity`` of the call before and leave theirs in it.

    Args:
        task: The learning problem.
        model: A network of the task, on the device to compute on; its weights are overwritten.
        train: The client's training examples, on the same device.
        test: The client's test examples; None where it holds none.
        partition: The client's number, which with the seed and the round fixes its batches.
    """

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        train: Examples | None,
        test: Examples | None = None,
        *,
        partition: int = 0,
    ) -> None:
        self.task, self.model, self.partition = task, model, partition
        self._train, self._test = train, test

    def fit(
        self, parameters: Parameters, config: Config, velocity: Velocity | None = None
    ) -> tuple[Parameters, int, Config]:
        """Run local SGD (ClientUpdate of arXiv 1602.05629v4, Algorithm 1).

        The examples are split into batches of B once, in an order fixed by (seed, partition,
        round), and E epochs run over the same batches, as the algorithm is written; or, with
        "local-steps" > 0, that many steps, beginning again when the batches are used up.

        Args:
            parameters: The model's arrays, in the order of its state dict.
            config: "learning-rate" (eta), "local-epochs" (E), "local-steps" (0: epochs count),
                "batch-size" (B, 0: all local examples), "seed", "server-round"; optionally
                "momentum" (m: v <- m v + g, and the step is eta v) and "proximal-mu" (FedProx's
                mu: adds mu / 2 * |w - w_sent|^2 to the loss).
            velocity: The v to begin with, zero for what it does not name; with momentum it holds
                the last v once all steps are done. None begins with zero and forgets.

        Returns:
            The trained arrays, the number of local examples n_k, and {"train-loss": the mean
            batch loss over the local steps}.
        """
        examples = _required(self._train, "train")
        state = load_arrays(self.model, parameters)
        size, limit = int(config["batch-size"]), int(config.get("local-steps", 0))
        order = torch_stream(
            int(config["seed"]), "batches", self.partition, int(config["server-round"])
        )
        # Few steps need few examples; 0, all examples a step or no limit of steps, means all.
        chosen = examples.shuffled(order, limit * size or None)
        if self.task.augment is None:
            chosen = chosen.prepared()  # once, not anew for every step
        size = size or len(chosen)
        starts = range(0, len(chosen), size)
        steps = islice(cycle(starts), limit or len(starts) * int(config["local-epochs"]))
        with self._randomness(config):
            loss = self.descend(
                (chosen.part(start, start + size) for start in steps),
                repeat(float(config["learning-rate"])),
                config,
                velocity,
            )
        # Copied: the model's memory is used again by the next client.
        trained = [array.cpu().numpy().copy() for array in state.values()]
        return trained, len(examples), {"train-loss": loss}

    def gradient(
        self, parameters: Parameters, config: Config, velocity: Velocity | None = None
    ) -> tuple[Parameters, int, Config]:
        """Return the gradient of the mean loss over all local examples, for FedSGD.

        Args:
            parameters: As in `fit`.
            config: Optionally "momentum" (m): then v <- m v + g is returned in the place of g.
            velocity: As in `fit`.

        Returns:
            The gradient's arrays, in the order of the model's state dict (zeros for what is no
            parameter), n_k, and {"train-loss": the loss at ``parameters``}.
        """
        examples = _required(self._train, "train")
        state = load_arrays(self.model, parameters)
        self._train_mode()
        self.model.zero_grad(set_to_none=True)
        total = torch.zeros((), device=examples.targets.device)
        predictions = examples.predictions()
        with self._randomness(config):
            for inputs, targets in examples.batches(GRADIENT_BATCH):
                share = number_of_predictions(targets) / predictions
                loss = self.task.loss(self.model(inputs), targets) * share
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.detach()
        found = {
            name: parameter.grad
            for name, parameter in self.model.named_parameters()
            if parameter.grad is not None
        }
        if momentum := float(config.get("momentum", 0.0)):
            _accelerate(found, momentum, {} if velocity is None else velocity)
        gradient = [
            found[name] if name in found else torch.zeros_like(array)
            for name, array in state.items()
        ]
        arrays = [array.cpu().numpy() for array in gradient]
        return arrays, len(examples), {"train-loss": total.item()}

    def evaluate(self, parameters: Parameters, config: Config) -> tuple[float, int, Config]:
        """Return the loss, the number of test examples, and {"accuracy": share correct}."""
        del config
        examples = _required(self._test, "test")
        load_arrays(self.model, parameters)
        loss, accuracy = evaluate(self.task, self.model, examples)
        return loss, len(examples), {"accuracy": accuracy}

    def descend(
        self,
        batches: Iterable[tuple[Tensor, Tensor]],
        rates: Iterable[float],
        config: Config,
        velocity: Velocity | None = None,
    ) -> float:
        """Take one SGD step per batch, from the weights that the model has.

        Args:
            batches: Prepared inputs and their targets, at least one pair.
            rates: The learning rate of every step, at least as many.
            config: Optionally "momentum" and "proximal-mu", as in `fit`.
            velocity: As in `fit`.

        Returns:
            The mean of the batches' losses.
        """
        # torch.optim.SGD takes the same steps, to the last bit; but making one for every client and
        # round costs more than a small model's step, and the first imports torch's compiler (2 s).
        self._train_mode()
        named = {name: w for name, w in self.model.named_parameters() if w.requires_grad}
        weights: list[Tensor] = list(named.values())
        velocity = {} if velocity is None else velocity
        momentum = float(config.get("momentum", 0.0))
        mu = float(config.get("proximal-mu", 0.0))
        sent = [weight.detach().clone() for weight in weights] if mu else []
        moving = [_moving(velocity, name, w) for name, w in named.items()] if momentum else []
        total = torch.zeros((), device=weights[0].device)
        steps = 0
        for (inputs, targets), rate in zip(batches, rates, strict=False):
            loss = self.task.loss(self.model(inputs), targets)
            gradients = torch.autograd.grad(
                loss, weights, allow_unused=True, materialize_grads=True
            )
            with torch.no_grad():
                for gradient, weight, origin in zip(gradients, weights, sent, strict=False):
                    gradient.add_(weight - origin, alpha=mu)
                if momentum:
                    torch._foreach_mul_(moving, momentum)
                    torch._foreach_add_(moving, gradients)
                torch._foreach_add_(weights, moving if momentum else gradients, alpha=-rate)
            total += loss.detach()
            steps += 1
        velocity.update(zip(named, (v.cpu().numpy() for v in moving), strict=False))
        return total.item() / steps

    @contextmanager
    def _randomness(self, config: Config) -> Iterator[None]:
        """Seed torch's global random state, which augmentation and dropout draw from.

        The draws are those of this client in this round; afterwards the state is what it was.
        """
        before = torch.get_rng_state()
        path = ("local", self.partition, int(config.get("server-round", 0)))
        torch.default_generator.manual_seed(integer(int(config.get("seed", 0)), *path))
        try:
            yield
        finally:
            torch.set_rng_state(before)

    def _train_mode(self) -> None:
        if not self.model.training:  # it is asked for at every step of some protocols
            self.model.train()


def _moving(velocity: Velocity, name: str, weight: Tensor) -> Tensor:
    """Return a parameter's momentum buffer, zero where it has none yet."""
    if name in velocity:
        return torch.tensor(velocity[name], device=weight.device)
    return torch.zeros_like(weight)


def _accelerate(gradient: dict[str, Tensor], momentum: float, velocity: Velocity) -> None:
    """Turn g into m v + g in place, and keep it as the next v."""
    for name, array in gradient.items():
        if name in velocity:
            array.add_(torch.tensor(velocity[name], device=array.device), alpha=momentum)
        velocity[name] = array.cpu().numpy().copy()


def _required(examples: Examples | None, split: str) -> Examples:
    if examples is None or len(examples) == 0:
        raise ValueError(f"this client has no {split} examples")
    return examples
