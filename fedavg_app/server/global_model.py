"""The global model: the arrays that travel, and those that complete them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord

from fedavg_app.config import TrainingConfig
from fedavg_app.errors import ConfigError
from strategies.rounds.flower_arrays import array_record, to_record
from strategies.rounds.local_arrays import matching

if TYPE_CHECKING:  # torch takes two seconds to import
    from tasks.base import Task
    from tasks.model_arrays import ModelArrays


@dataclass(frozen=True)
class GlobalModel:
    """The initial model of a run.

    Attributes:
        arrays: The classes of its arrays.
        sent: The arrays that are sent: trained arrays and buffers, but for those that stay on the
            clients. Strategies know only these.
        fixed: The arrays that are not sent, since every client has them from the task: fixed ones,
            and the initial values of those that stay on the clients.
        fingerprint: The fingerprint of the fixed arrays, which clients compare with their own;
            empty if there are none.
    """

    arrays: "ModelArrays"
    sent: ArrayRecord
    fixed: ArrayRecord
    fingerprint: str

    @classmethod
    def initial(cls, task: "Task", config: TrainingConfig) -> "GlobalModel":
        """Return the task's model, initialised by the config's seed.

        Raises:
            ConfigError: The model has an array that cannot be sent.
        """
        from tasks.model_arrays import ModelArrays, fixed_fingerprint, read_arrays

        try:
            model = task.initial_model(config.seed)
            arrays = ModelArrays.of(model)
            local = matching(arrays.sent, config.local_patterns)
            names = tuple(name for name in arrays.sent if name not in local)
            fixed = to_record(read_arrays(model, (*arrays.fixed, *local)))
            sent = to_record(read_arrays(model, names))
            return cls(arrays, sent, fixed, fixed_fingerprint(model, arrays))
        except ValueError as error:
            raise ConfigError("task", config.task, str(error)) from error

    def complete(self, sent: ArrayRecord) -> ArrayRecord:
        """Return all arrays of the state dict; those that travel are taken from ``sent``."""
        if len(sent) == len(self.arrays.names):
            return sent
        arrays = {**self.fixed, **sent}
        aliases = self.arrays.aliases
        return array_record({name: arrays[aliases.get(name, name)] for name in self.arrays.names})

    def sent_of(self, complete: ArrayRecord) -> ArrayRecord:
        """Return those arrays of a complete model that travel."""
        return array_record({name: complete[name] for name in self.sent})
