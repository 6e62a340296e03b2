"""Strategies: one module per method, found by name.

A name is built in, registered by an installed package in the entry-point group
`fedavg_app.strategies`, or "package.module:Class" for any importable
`flwr.serverapp.strategy.Strategy`.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import flwr.serverapp.strategy
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import Strategy

from .any_app import compression_mod
from .base import FederatedStrategy
from .registry import Registry, make, parameters_of
from .rounds.flower_adapter import FlowerAdapter
from .rounds.flower_metrics import wrapped
from .rounds.privacy import with_accountant
from .rounds.runner import Runner
from .rounds.strategy_runner import StrategyRunner
from .rounds.values import RunSettings

STRATEGIES = Registry[Strategy](
    Strategy,  # type: ignore[type-abstract]
    "strategy",
    {
        "cafe": f"{__name__}.cafe:CAFe",
        "compressed": f"{__name__}.compressed:Compressed",
        "eden": f"{__name__}.compressed:EDEN",
        "fedavg": f"{__name__}.fedavg:FedAvg",
        "fedbuff": f"{__name__}.fedbuff:FedBuff",
        "fednova": f"{__name__}.fednova:FedNova",
        "fedsgd": f"{__name__}.fedsgd:FedSGD",
        "qsgd": f"{__name__}.compressed:QSGD",
        "scaffold": f"{__name__}.scaffold:SCAFFOLD",
        "secure-sum": f"{__name__}.secure_sum:SecureSum",
        "signsgd": f"{__name__}.signsgd:SignSGD",
        "sparseloco": f"{__name__}.sparseloco:SparseLoCo",
        "stc": f"{__name__}.stc:STC",
        "topk": f"{__name__}.compressed:TopK",
    },
    group="fedavg_app.strategies",
)
names = STRATEGIES.names
__all__ = ["STRATEGIES", "build", "client_mod", "compression_mod", "load", "names"]
# Flower's strategies sample themselves; they must use all nodes of the cohort that they see.
WHOLE_COHORT = {
    "fraction_train": 1.0,
    "fraction_evaluate": 1.0,
    "min_train_nodes": 1,
    "min_evaluate_nodes": 1,
    "min_available_nodes": 1,
}
# Other arguments that a config does not set: names of records, and functions.
OF_ANY_APP = {
    **{field.name: field.default for field in fields(FederatedStrategy) if field.name != "weights"},
    **WHOLE_COHORT,
}


def load(name: str) -> type[Strategy]:
    """Return the class of that name; see `Registry.load`.

    Raises:
        ValueError, ImportError, AttributeError: As there. For the name of a Flower strategy, such
            as "fedprox", the line says how to name it.
    """
    flowers = {name.lower(): name for name in flwr.serverapp.strategy.__all__}
    unknown = name not in STRATEGIES.built_in and ":" not in name
    if unknown and name.lower() in flowers and name not in names():
        path = f"flwr.serverapp.strategy:{flowers[name.lower()]}"
        raise ValueError(f"{name!r} is a strategy of Flower's; give {path!r}")
    return STRATEGIES.load(name)


def build(name: str, arguments: Mapping[str, Any], settings: RunSettings | None = None) -> Runner:
    """Return the runner of the strategy of that name, made with the keyword ``arguments``.

    A strategy that is not a `FederatedStrategy` is run by a `FlowerAdapter`. A wrapper, such as
    Flower's for differential privacy, takes the name of another strategy as its argument
    ``strategy``; arguments that the wrapper does not take are passed to that strategy.

    Args:
        name: See `load`.
        arguments: Arguments of the class.
        settings: The settings of the run.

    Raises:
        ValueError, ImportError, AttributeError: As for `load`, the class does not take the
            arguments or refuses them, or it overrides what Flower's `start` calls.
    """
    cls, settings = load(name), settings or RunSettings()
    made = _instance(cls, with_accountant(cls, arguments, settings.num_clients))
    for part in wrapped(made):
        # A subclass may have fixed its own values: if it wants more nodes than a cohort has, it
        # would never stop waiting.
        for attribute in WHOLE_COHORT.keys() & vars(part).keys():
            setattr(part, attribute, WHOLE_COHORT[attribute])
    if isinstance(made, FederatedStrategy):
        called_by_start = sorted(Strategy.__abstractmethods__ - {"summary"})
        base = FederatedStrategy
        if own := [key for key in called_by_start if getattr(cls, key) is not getattr(base, key)]:
            fix = "give the rounds' settings as keys, and override broadcast, read or step"
            raise ValueError(
                f"{name!r} overrides {', '.join(own)}, called in other apps only; {fix}"
            )
        return StrategyRunner(made, settings)
    inside = getattr(made, "strategy", None)
    if isinstance(inside, FederatedStrategy):  # it validates, too, and is given no buffers
        inside.runner = StrategyRunner(inside, replace(settings, buffers=()))
    return FlowerAdapter(made, settings)


def client_mod(name: str, arguments: Mapping[str, Any]) -> Mod | None:
    """Return the client mod of the strategy of that name; None for strategies written for Flower.

    Raises:
        ValueError, ImportError, AttributeError: As for `build`.
    """
    cls = load(name)
    if not issubclass(cls, FederatedStrategy):
        return None
    strategy = _instance(cls, arguments)
    assert isinstance(strategy, FederatedStrategy)
    return strategy.client_mod


def _instance(cls: type[Strategy], arguments: Mapping[str, Any]) -> Strategy:
    parameters = parameters_of(cls)
    fixed = OF_ANY_APP if issubclass(cls, FederatedStrategy) else WHOLE_COHORT
    if "strategy" in parameters and "strategy" in arguments:
        own = {key: value for key, value in arguments.items() if key in parameters}
        others = {key: value for key, value in arguments.items() if key not in parameters}
        name = str(own["strategy"])
        inner = load(name)
        if issubclass(inner, FederatedStrategy) and not inner.sends_models():
            fix = "give one whose clients send models, as fedavg's do"  # a wrapper reads them
            raise ValueError(f"strategy = {name!r}: {fix}")
        arguments = {**own, "strategy": _instance(inner, others)}
    if issubclass(cls, FederatedStrategy) and "weights" in parameters:
        arguments = {"weights": cls.paper_weights, **arguments}
    return make(cls, arguments, fixed)
