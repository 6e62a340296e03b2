"""The settings of a client's local training, parsed once from a message's config."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

# What the learning rate is multiplied by, by the share of the round's steps that are done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
}


@dataclass(frozen=True)
class TrainingSettings:
    """What a client does in a round; field ``batch_size`` is the key "batch-size", and so on.

    Attributes:
        learning_rate: eta; a gradient needs none.
        local_epochs: E, passes over the local examples.
        local_steps: Steps of SGD instead of epochs, if not 0.
        batch_size: B, examples a step; 0 for all local examples.
        momentum: m: v <- m v + g, and a step is eta v.
        weight_decay: lambda: adds lambda / 2 * |w|^2 to the loss.
        proximal_mu: FedProx's mu: adds mu / 2 * |w - w_sent|^2 to the loss.
        gradient_clip: The maximum norm of a step's gradient; 0 for no limit.
        rate_schedule: The learning rate within a round: "constant", or "linear" or "cosine" decay
            to 0.
        optimizer: The class of torch's optimisers (`tasks.training.optimizers`); "" for SGD.
        optimizer_args: Its arguments but the learning rate, as a JSON object.
        optimizer_state: "kept" where the client keeps the optimiser's state from round to round.
        precision: "bf16" where layers compute in bfloat16 (`torch.autocast`).
        seed: The run's.
        server_round: The round, from 1.
    """

    learning_rate: float = 0.0
    local_epochs: int = 1
    local_steps: int = 0
    batch_size: int = 0
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal_mu: float = 0.0
    gradient_clip: float = 0.0
    rate_schedule: str = "constant"
    optimizer: str = ""
    optimizer_args: str = ""
    optimizer_state: str = "new"
    precision: str = "float32"
    seed: int = 0
    server_round: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return the settings in a config with kebab-case keys; other keys are ignored.

        Raises:
            ValueError: A value is not a number where it should be one.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            key = field.name.replace("_", "-")
            if key in config:
                kind: Any = type(field.default)
                values[field.name] = kind(config[key])
        return cls(**values)

    @property
    def keeps_memory(self) -> bool:
        """Whether the client keeps something of its optimiser from round to round."""
        return self.optimizer_state == "kept" if self.optimizer else self.momentum > 0

    def rates(self, steps: int) -> Iterator[float]:
        """Yield the learning rates of this many steps."""
        for step in range(steps):
            share = step / steps
            yield self.learning_rate * SCHEDULES[self.rate_schedule](share)
