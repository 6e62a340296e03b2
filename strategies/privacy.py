"""How much privacy a run has spent, by the accountant of Flower's wrappers with fixed clipping."""

import inspect
from collections.abc import Mapping
from typing import Any

from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
from flwr.serverapp.strategy import Strategy

# Arguments of ours, which become Flower's argument "accountant".
DELTA, MAX_EPSILON, ACCOUNTANT = "target_delta", "max_epsilon", "accountant"


class Accountant(RdpAccountant):
    """Flower's accountant, which can be part of a checkpoint."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes it again: its modules cannot be pickled."""
        return Accountant, (self.config,), self.state_dict()

    def __setstate__(self, state: dict[str, object]) -> None:
        self.load_state_dict(state)


def with_accountant(
    cls: type[Strategy], arguments: Mapping[str, Any], num_clients: int
) -> Mapping[str, Any]:
    """Return the arguments with an accountant in place of "target_delta" and "max_epsilon".

    All clients are one population, and a round's release is accounted without amplification by
    sampling, as Flower does it. Other arguments, and other strategies, are left as they are.

    Raises:
        ValueError: They cannot be used, or the package dp-accounting is missing.
    """
    takes_one = ACCOUNTANT in inspect.signature(cls).parameters
    if DELTA not in arguments or not takes_one:
        return arguments
    try:
        config = PrivacyConfig(
            target_delta=arguments[DELTA],
            population_size=max(num_clients, 1),
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
            max_epsilon=arguments.get(MAX_EPSILON),
        )
        accountant = Accountant(config)
    except (ImportError, TypeError) as error:
        raise ValueError(str(error)) from error
    others = {key: one for key, one in arguments.items() if key not in (DELTA, MAX_EPSILON)}
    return {**others, ACCOUNTANT: accountant}
