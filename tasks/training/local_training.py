"""The settings of a client's local training, parsed once from a message's config."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class LocalTraining:
    """What a client does in a round; field ``batch_size`` is the key "batch-size", and so on.

    Attributes:
        learning_rate: eta; a gradient needs none.
        local_epochs: E, passes over the local examples.
        local_steps: Steps of SGD instead of epochs, if not 0.
        batch_size: B, examples a step; 0 for all local examples.
        momentum: m: v <- m v + g, and a step is eta v.
        weight_decay: lambda: adds lambda / 2 * |w|^2 to the loss.
        proximal_mu: FedProx's mu: adds mu / 2 * |w - w_sent|^2 to the loss.
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
    seed: int = 0
    server_round: int = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return the settings in a config with kebab-case keys; other keys are ignored.

        Raises:
            ValueError: A value is not a number.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            key = field.name.replace("_", "-")
            if key in config:
                values[field.name] = (float if field.type is float else int)(config[key])
        return cls(**values)
