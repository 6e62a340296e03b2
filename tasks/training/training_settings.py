"""The settings of local training, each written once.

The same fields are keys of a run's config, entries of the messages to clients, and what a client's
training takes. Field ``batch_size`` is the key "batch-size", and so on.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tasks.arguments import Arguments, ArgumentsField

Count = Annotated[int, Field(ge=0)]

SGD = "sgd"
# What the learning rate is multiplied by, by the share of the round's steps that are done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
}


def kebab(name: str) -> str:
    """Return the key of a field: "batch-size" for "batch_size"."""
    return name.replace("_", "-")


class StepSettings(BaseModel):
    """The settings of a step, on a client or centrally."""

    model_config = ConfigDict(alias_generator=kebab, populate_by_name=True, frozen=True)

    batch_size: Count = Field(10, description="B, examples a step; 0 means all local examples")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="m, of SGD; clients keep the momentum buffers between rounds"
    )
    weight_decay: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="lambda, of SGD; adds lambda w to each gradient"
    )
    optimizer: str = Field(
        "auto",
        description="the clients' optimizer: sgd, another class of torch.optim such as adamw, or "
        "package.module:Class; auto: the task's",
    )
    optimizer_args: ArgumentsField = Field(
        Arguments(),
        description="the optimizer's arguments in TOML, for example 'weight_decay = 0.1'; not "
        "for sgd",
    )
    gradient_clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="maximum norm of each step's gradient; 0 means no limit"
    )
    precision: Literal["float32", "bf16"] = Field(
        "float32",
        description="bf16 trains in mixed precision: layers compute in bfloat16, weights and "
        "their updates stay in float32",
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        1, description="fixes the partition, initial model, participants and clients' batches"
    )


class LocalWork(StepSettings):
    """What clients do in a round, the same in each."""

    ALWAYS_SENT: ClassVar = {"local_epochs", "local_steps", "batch_size", "momentum", "seed"}

    local_epochs: Count = Field(1, description="E, passes over the local data a round")
    local_steps: Count = Field(0, description="SGD steps a round, instead of epochs if not 0")
    optimizer_state: Literal["new", "kept"] = Field(
        "new",
        description="kept: clients keep their optimizer's state between rounds; new: it is "
        "reset every round; sgd always keeps its momentum",
    )
    rate_schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="learning rate within a round: constant, or linear or cosine decay to 0",
    )
    evaluate_after_steps: Count = Field(
        0,
        description="before its own test a client trains the model for this many steps on its "
        "training data; the trained model is not kept",
    )

    initial_loss: bool = Field(
        False,
        description="clients also report the loss of the received model on their training "
        "examples, as initial-loss",
    )

    def message(self) -> dict[str, int | float | str]:
        """Return the entries of messages to clients, by kebab-case key.

        They are those of `ALWAYS_SENT`, and of the others those that a client would not assume
        (`TrainingSettings`).
        """
        assumed = TrainingSettings()
        told = {
            name
            for name in LocalWork.model_fields
            if name in self.ALWAYS_SENT or getattr(self, name) != getattr(assumed, name)
        }
        return self.model_dump(by_alias=True, include=told)


class TrainingSettings(LocalWork):
    """What a client's training takes in a round: its local work, and what changes with the round.

    Attributes:
        optimizer: SGD where a message names none.
        learning_rate: eta; a gradient needs none.
        proximal_mu: FedProx's mu: adds mu / 2 * |w - w_sent|^2 to the loss.
        server_round: The round, from 1.
    """

    optimizer: str = SGD
    learning_rate: float = 0.0
    proximal_mu: float = 0.0
    server_round: int = 0

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        """Return the settings in a message's config with kebab-case keys; others are ignored.

        Raises:
            ValueError: A value is not what it should be.
        """
        try:
            return cls.model_validate(dict(message), by_alias=True, by_name=False)
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{first['loc'][0]} = {first['input']!r}: {first['msg']}") from None

    @property
    def is_sgd(self) -> bool:
        """Whether the optimiser is SGD, which momentum and weight decay describe."""
        return self.optimizer == SGD

    @property
    def keeps_memory(self) -> bool:
        """Whether the client keeps something of its optimiser from round to round."""
        return self.momentum > 0 if self.is_sgd else self.optimizer_state == "kept"

    def rates(self, steps: int) -> Iterator[float]:
        """Yield the learning rates of this many steps."""
        for step in range(steps):
            share = step / steps
            yield self.learning_rate * SCHEDULES[self.rate_schedule](share)
