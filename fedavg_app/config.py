"""The run config: every key of `[tool.flwr.app.config]`, typed, documented and checked.

The same keys serve `flwr run -c "key=value"` and `python simulation.py run --key value`.
The papers' symbols: K clients, a fraction C of them a round, E local epochs, batch size B, learning
rate eta.
"""

import logging
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedavg_app.budget import Budget, parse_budget
from fedavg_app.errors import ConfigError, unknown_key
from tasks.arguments import Arguments, ArgumentsField, inline
from tasks.data.dataset import DataOptions
from tasks.training.training_settings import Count, LocalWork, StepSettings
from tasks.training.training_settings import kebab as kebab

if TYPE_CHECKING:  # it takes two seconds to import
    import torch

logger = logging.getLogger("fedavg_app.config")


class Effect(Enum):
    """How a key affects the result of a run, as metadata of its field.

    A key without an effect is part of what the run computes, and must not change on resume.

    Attributes:
        FREE_ON_RESUME: The key is part of the result, but a resumed run may have another value.
        NONE: The key says where and how to run; runs that differ only in such keys are equal.
    """

    FREE_ON_RESUME = "result; free on resume"
    NONE = "nothing"


Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

# K in a simulation that names no number of clients.
SIMULATED_CLIENTS = 100


class TrainingConfig(StepSettings):
    """The settings of any training; the field ``run_dir`` is the key "run-dir"."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(
        "mnist-2nn", description="the learning problem: a name or package.module:TASK"
    )
    num_server_rounds: Annotated[Positive, Effect.FREE_ON_RESUME] = Field(
        200, description="maximum number of rounds"
    )
    learning_rate: Annotated[float, Field(gt=0, le=1e6)] | Literal["auto"] = Field(
        "auto",
        description="eta; auto: the task's default for the strategy or the optimizer, otherwise "
        "the optimizer's own",
    )
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="factor on the learning rate after every round"
    )
    data_source: Annotated[Literal["auto", "mirror", "embedded"], Effect.FREE_ON_RESUME] = Field(
        "auto",
        description="mirror, embedded, or auto: cache, mirror, embedded",
    )
    data_dir: Annotated[str, Effect.NONE] = Field(
        "", description="a directory with the data set's canonical files"
    )
    evaluate_every: Positive = Field(1, description="rounds between two tests of the global model")
    objective: Annotated[str, Effect.FREE_ON_RESUME] = Field(
        "auto",
        description="what target, patience and best model use: a metric's name or loss, after "
        "'min' or 'max' if the metric does not say which is better; auto: the task's",
    )
    target: Annotated[
        Annotated[float, Field(allow_inf_nan=False)] | Literal["auto", "none"],
        Effect.FREE_ON_RESUME,
    ] = Field(
        "auto",
        description="stop at this value of the objective, such as an accuracy of 0.97; none "
        "means never; auto: the task's target",
    )
    patience: Annotated[Count, Effect.FREE_ON_RESUME] = Field(
        0, description="stop after this many rounds without a better objective; 0 means never"
    )
    device: Annotated[Literal["auto", "cpu", "cuda"], Effect.NONE] = Field(
        "auto", description="where to train: cpu, cuda, or auto, the GPU if there is one"
    )
    run_dir: Annotated[str, Effect.NONE] = Field(
        "runs", description="each run writes its results to a new folder in this folder"
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.data_dir and self.data_source != "auto":
            fix = "leave it at 'auto' if data-dir is given"
            raise ConfigError("data-source", self.data_source, fix)
        return self

    @property
    def data_options(self) -> DataOptions:
        """Where to look for the data set."""
        return DataOptions(self.data_source, self.data_dir)

    @property
    def local_patterns(self) -> list[str]:
        """The name patterns of arrays that stay on the clients."""
        return []

    @property
    def limit(self) -> Budget | None:
        """What the training may spend, if that is limited."""
        return None

    @property
    def torch_device(self) -> "torch.device":
        """Where this process trains: "auto" is the GPU if the process sees one."""
        import torch

        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(name)

    @property
    def method(self) -> str:
        """The name of the training method."""
        return "central"

    @property
    def setting(self) -> str:
        """Human-readable description of where the data are."""
        return "all data in one place"

    @property
    def local_work(self) -> str:
        """Human-readable description of the local work of a round."""
        return f"B = {self.batch_size or 'all'}"


class RunConfig(TrainingConfig, LocalWork):
    """The settings of a federated run."""

    strategy: str = Field(
        "fedavg", description="the method: a name, package.module:Class, or an entry point's name"
    )
    strategy_args: ArgumentsField = Field(
        Arguments(),
        description="the strategy's arguments in TOML, for example 'eta = 0.01, tau = 0.1'",
    )
    num_clients: Count = Field(
        0,
        description="K, the number of clients to split the data among; 0: one per SuperNode, "
        f"and {SIMULATED_CLIENTS} without SuperNodes",
    )
    fraction_train: Fraction = Field(
        0.1, description="C, the share of clients that train in a round; 0 means one client"
    )
    fraction_evaluate: Fraction = Field(
        0.0, description="share of clients that evaluate on their own test data; 0 means none"
    )
    selection: str = Field(
        "uniform",
        description="which clients train in a round: uniform, by-size, oort, power-of-choice, "
        "round-robin or package.module:Class, then its arguments in TOML, as in "
        "'power-of-choice candidates = 20'",
    )
    partition: str = Field(
        "iid",
        description="how the data are split across the clients: a name or package.module:function",
    )
    partition_args: ArgumentsField = Field(
        Arguments(),
        description="the partition's arguments in TOML, for example 'shards-per-client = 2'; "
        "by = 'bins:10' goes by other labels than owners or classes",
    )
    validation: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="share of each client's training examples that is set aside; target, patience "
        "and best model then go by these instead of the test set",
    )
    round_timeout: Annotated[Seconds, Effect.FREE_ON_RESUME] = Field(
        0.0, description="seconds after which a round continues without stragglers; 0 waits for all"
    )
    budget: Annotated[str, Effect.FREE_ON_RESUME] = Field(
        "",
        description="end before the round that would exceed it: '50 MB up', 'down' or 'both' "
        "of all clients, '1 MB up a client' (of all / K), or '2 h on 4g', time on these links",
    )
    over_selection: Annotated[float, Field(ge=0, le=100)] = Field(
        0.0, description="share of clients asked beyond C; a round ends when enough have answered"
    )
    min_replies: Positive = Field(
        1, description="usable replies a round needs; with fewer the model does not change"
    )
    max_examples: Annotated[int, Field(ge=1, le=2**53)] = Field(
        10**9, description="a client that claims more examples is rejected"
    )
    max_update_norm: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="a client whose update has a larger L2 norm is rejected; 0 means no limit"
    )
    min_nodes: Annotated[Count, Effect.NONE] = Field(
        0, description="nodes to wait for before round 1; others may join later; 0: one per client"
    )
    node_timeout: Annotated[Seconds, Effect.NONE] = Field(
        3.0,
        description="give up after this many seconds without a new node before round 1, or "
        "without any node later",
    )
    checkpoint_every: Annotated[Count, Effect.NONE] = Field(
        0, description="rounds between checkpoints; 0 means no checkpoints by round"
    )
    checkpoint_seconds: Annotated[Seconds, Effect.NONE] = Field(
        0.0,
        description="seconds between checkpoints, written at the end of a round; 0 means no "
        "checkpoints by time",
    )
    resume: Annotated[str, Effect.NONE] = Field("", description="the folder of the run to resume")
    links: str = Field(
        "",
        description="simulate the clients' links on a virtual clock, which round-timeout then "
        "uses: fibre, cable, 5g, 4g, lte-m, nb-iot, phones, or a TOML file",
    )
    seconds_per_example: Seconds | Literal["auto"] = Field(
        "auto",
        description="computing time of an example on one core, for the virtual clock; auto: the "
        "task's",
    )
    client_mods: str = Field(
        "",
        description="Flower mods around the clients' work: package.module:attribute, outer first",
    )
    local_arrays: str = Field(
        "",
        description="arrays that stay on each client (FedBN): name patterns such as 'bn*,head.*', "
        "or '*' for clients that train alone; target and patience then use the clients' own tests",
    )

    @model_validator(mode="before")
    @classmethod
    def _links_of_budget(cls, values: Any) -> Any:
        """Move the links that a time budget names to "links"; the budget keeps the limit alone."""
        if not isinstance(values, Mapping) or not (text := values.get("budget")):
            return values
        budget, named = parse_budget(str(text))
        links = values.get("links") or named
        if named not in ("", links):
            raise ConfigError("budget", text, f"leave out 'on {named}', or give it as links")
        if not budget.direction and not links:
            raise ConfigError("budget", text, "name the links of the time, as in: 2 h on 4g")
        return {**values, "budget": str(budget), "links": links}

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        if not self.local_epochs and not self.local_steps:
            raise ConfigError("local-epochs", 0, "give at least 1, or set local-steps")
        if self.local_epochs > 1 and self.local_steps:
            fix = "leave it at 1 if local-steps is given, which replaces it"
            raise ConfigError("local-epochs", self.local_epochs, fix)
        if self.evaluate_after_steps and not self.fraction_evaluate:
            fix = "clients do not test; give fraction-evaluate, as 1.0"
            raise ConfigError("evaluate-after-steps", self.evaluate_after_steps, fix)
        if self.validation and self.local_patterns:
            fix = "leave it out: with local-arrays target and patience use the clients' own tests"
            raise ConfigError("validation", self.validation, fix)
        return self

    @property
    def limit(self) -> Budget | None:
        """The parsed "budget", if it has one."""
        return parse_budget(self.budget)[0] if self.budget else None

    @property
    def local_patterns(self) -> list[str]:
        """The patterns in "local-arrays", which are separated by commas."""
        return [pattern for part in self.local_arrays.split(",") if (pattern := part.strip())]

    @property
    def method(self) -> str:
        """The strategy's name, without the module of a path."""
        return self.strategy.rpartition(":")[2]

    @property
    def setting(self) -> str:
        """Human-readable K and C."""
        clients = f"K = {self.num_clients} clients ({self.partition})"
        return f"{clients}, C = {self.fraction_train:g}"

    @property
    def local_work(self) -> str:
        """Human-readable E, or the number of local steps, and B."""
        steps = self.local_steps
        plural = "" if steps == 1 else "s"
        work = f"{steps} local step{plural}" if steps else f"E = {self.local_epochs}"
        return f"{work}, {super().local_work}"

    def local_examples(self, size: int) -> int:
        """Return how many examples a client with ``size`` examples trains on in a round."""
        if self.local_steps:
            return self.local_steps * min(self.batch_size or size, size)
        return self.local_epochs * size


# What a gradient of all local examples, or a client's own test, depends on.
OF_A_GRADIENT = {"momentum", "weight_decay", "precision", "seed", "evaluate_after_steps"}


def warn_of_ignored(config: RunConfig, work: str) -> None:
    """Log the keys of local training that were set for a strategy whose clients do other work."""
    names = [name for name in LocalWork.model_fields if name not in OF_A_GRADIENT]
    if config.evaluate_after_steps:  # before its test a client takes steps, which use the others
        names = ["local_epochs", "local_steps", "initial_loss"]
    values, default = config.model_dump(), RunConfig().model_dump()
    given = [f"{kebab(name)} = {values[name]}" for name in names if values[name] != default[name]]
    if given:
        text = "%s: no effect, since a client computes %s; leave it out"
        logger.warning(text, ", ".join(given), work)


class CentralConfig(TrainingConfig):
    """The settings of training by SGD on the pooled data."""

    num_server_rounds: Annotated[Positive, Effect.FREE_ON_RESUME] = Field(
        2000, description="maximum number of SGD steps, each counted as a round"
    )
    evaluate_every: Positive = Field(100, description="steps between two tests of the model")
    num_threads: Positive = Field(
        1, description="CPU threads; the last bits of the result depend on their number"
    )


Config = TypeVar("Config", bound=TrainingConfig)


def with_clients(config: Config, number: int = SIMULATED_CLIENTS) -> Config:
    """Return the config with that number of clients if it is a `RunConfig` that names none."""
    if not isinstance(config, RunConfig) or config.num_clients:
        return config
    return config.model_copy(update={"num_clients": number})


def fields_with(kind: type[TrainingConfig], *effects: Effect) -> set[str]:
    """Return the names of the config's fields that have one of these effects."""
    return {
        name
        for name, field in kind.model_fields.items()
        if any(effect in field.metadata for effect in effects)
    }


def parse_config(values: Mapping[str, Any]) -> RunConfig:
    """Return the checked config of a run, as `parse` does."""
    return parse(RunConfig, values)


def parse(kind: type[Config], values: Mapping[str, Any]) -> Config:
    """Return the checked config for kebab-case keys (missing keys take their defaults).

    Raises:
        ConfigError: An unknown key, a value out of its range, or two keys that do not go together.
    """
    try:
        return kind.model_validate(dict(values), by_alias=True, by_name=False)
    except ValidationError as error:
        raise config_error(error, kind) from None


def parse_saved(values: Mapping[str, Any]) -> TrainingConfig:
    """Return the saved config of any kind of training and version, checked by today's rules."""
    kind = RunConfig if "strategy" in values else CentralConfig
    return with_clients(parse(kind, migrate_saved_keys(values)))


def migrate_saved_keys(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a saved config of any version by today's keys: those removed since are translated."""
    values = dict(saved)
    if (accuracy := values.pop("target-accuracy", "auto")) != "auto":
        values["target"] = accuracy or "none"
    if by := values.pop("partition-by", ""):
        given = values.get("partition-args", "")
        values["partition-args"] = ", ".join(filter(None, (given, inline({"by": by}))))
    for key, unused in (("link-work", ""), ("untrained-clients", "left-out")):
        if values.get(key) == unused:
            del values[key]
    return values


def config_error(error: ValidationError, kind: type[BaseModel]) -> ConfigError:
    """Return the first problem of a model's values as one line with key, value and fix."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):  # of keys that do not go together
        return cause
    # A union's location ends in the tried member, a subcommand's begins with its name.
    known = {kebab(name): field for name, field in kind.model_fields.items()}
    key = next((str(part) for part in first["loc"] if part in known), str(first["loc"][-1]))
    if first["type"] == "extra_forbidden":
        return ConfigError(key, first["input"], unknown_key(key, known))
    if cause is not None:
        return ConfigError(key, first["input"], str(cause))
    text = first["msg"].removeprefix("Input ")
    field = known.get(key)
    meaning = (field and field.description) or key
    return ConfigError(key, first["input"], f"{text} ({meaning})")
