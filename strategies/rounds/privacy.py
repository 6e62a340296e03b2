"""The privacy that a run has spent, by the accountant of Flower's wrappers with fixed clipping.

A round's mean over m clients has noise of standard deviation z C / m. If one client's update counts
as zero (zero-out: P. Kairouz et al.: Practical and Private (Deep) Learning Without Sampling or
Shuffling. ICML 2021, arXiv 2103.00039) the mean moves by at most C / m; if it is replaced by
another (replace-one), by up to 2 C / m, as with half the noise. docs/privacy-and-robustness.md says
more.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from ..registry import parameters_of

# Arguments of ours, which become Flower's argument "accountant".
DELTA, MAX_EPSILON, ACCOUNTANT = "target_delta", "max_epsilon", "accountant"
# Flower's wrappers, by where updates are clipped, and whether the norm adapts.
CLIPPED_BY_THE_SERVER = (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
)
CLIPPED_BY_CLIENTS = (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
)
PRIVATE = (*CLIPPED_BY_THE_SERVER, *CLIPPED_BY_CLIENTS)
ADAPTIVE = (CLIPPED_BY_THE_SERVER[0], CLIPPED_BY_CLIENTS[0])


class Accountant(RdpAccountant):
    """Flower's accountant, which also counts for replace-one and can be part of a checkpoint.

    Attributes:
        replace_one: Counts the same releases at twice the sensitivity.
    """

    def __init__(self, config: PrivacyConfig) -> None:
        super().__init__(config)
        self.replace_one = RdpAccountant(config)

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Count a release, by its noise relative to C / m."""
        super().compose(event, count)
        half = replace(event, noise_multiplier=event.noise_multiplier / 2)
        self.replace_one.compose(half, count)

    def spent(self) -> dict[str, float]:
        """Return "epsilon" (zero-out) and "epsilon-replace-one", both at "delta"."""
        delta = self.config.target_delta
        return {
            "epsilon": self.get_epsilon(delta),
            "epsilon-replace-one": self.replace_one.get_epsilon(delta),
            "delta": delta,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to rebuild it: its modules cannot be pickled."""
        states = self.state_dict(), self.replace_one.state_dict()
        return Accountant, (self.config,), states

    def __setstate__(self, states: tuple[dict[str, object], dict[str, object]]) -> None:
        for accountant, state in zip((self, self.replace_one), states, strict=True):
            accountant.load_state_dict(state)


def with_accountant(
    cls: type[Strategy], arguments: Mapping[str, Any], num_clients: int
) -> Mapping[str, Any]:
    """Return the arguments with an accountant in place of "target_delta" and "max_epsilon".

    All clients are one population, and a round's release is accounted without amplification by
    sampling, as in Flower. Other arguments, and other strategies, are left unchanged.

    Raises:
        ValueError: They cannot be used, or the package dp-accounting is missing.
    """
    takes_one = ACCOUNTANT in parameters_of(cls)
    if not arguments.keys() & {DELTA, MAX_EPSILON} or not (takes_one or issubclass(cls, ADAPTIVE)):
        return arguments
    if not takes_one:
        fixed = cls.__name__.replace("Adaptive", "Fixed")
        raise ValueError(
            f"{cls.__name__} cannot count privacy, since its clipping norm changes: take {fixed}, "
            "or leave out target-delta and max-epsilon"
        )
    if DELTA not in arguments:
        raise ValueError("max-epsilon needs a delta: give target-delta, too, such as 1e-5")
    if "weighted_by_key" in arguments:
        raise ValueError("leave out weighted-by-key: with target-delta all clients weigh the same")
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
    others = {key: value for key, value in arguments.items() if key not in (DELTA, MAX_EPSILON)}
    return {**others, ACCOUNTANT: accountant}


def accountant_of(strategy: Strategy) -> Accountant | None:
    """Return the accountant that `with_accountant` gave the strategy, if it has one."""
    found = getattr(strategy, ACCOUNTANT, None)
    return found if isinstance(found, Accountant) else None
