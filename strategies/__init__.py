"""Strategies: one module per protocol, found by name.

`load("fedavg")` takes a short name of ours, `load("package.module:Class")` any importable
`flwr.serverapp.strategy.Strategy`, and a third package may register its own short names under the
entry-point group `fedavg_app.strategies`.
"""

import inspect
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from flwr.app import MessageType
from flwr.clientapp.typing import Mod
from flwr.serverapp.strategy import Strategy

from strategies.base import CohortStrategy
from strategies.foreign import Screened
from strategies.limits import DEFAULTS, Limits

ENTRY_POINTS = "fedavg_app.strategies"
BUILT_IN = {
    "fedavg": "strategies.fedavg:FedAvg",
    "fedsgd": "strategies.fedsgd:FedSGD",
    "signsgd": "strategies.signsgd:SignSGD",
    "stc": "strategies.stc:STC",
    "topk": "strategies.topk:TopK",
}
# The round loop shows a strategy the round's cohort only, so Flower's strategies, which sample for
# themselves, must take all of the nodes they see.
WHOLE_COHORT = {
    "fraction_train": 1.0,
    "fraction_evaluate": 1.0,
    "min_train_nodes": 1,
    "min_evaluate_nodes": 1,
    "min_available_nodes": 1,
}


def known() -> list[str]:
    """Return the short names that `load` takes: ours and those of installed packages."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def load(name: str) -> type[Strategy]:
    """Return the strategy class that ``name`` stands for.

    Args:
        name: A short name (see `known`) or "package.module:Class".

    Raises:
        ValueError: Nothing of that name, it cannot be imported, or it is no `Strategy`.
    """
    if name in BUILT_IN:
        path = BUILT_IN[name]
    elif ":" in name:
        path = name
    else:
        installed = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
        if name not in installed:
            raise ValueError(f"known strategies: {', '.join(known())}; or package.module:Class")
        path = installed[name]
    module, _, attribute = path.partition(":")
    try:
        strategy = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"cannot import {path!r}: {error}") from error
    if not (inspect.isclass(strategy) and issubclass(strategy, Strategy)):
        raise ValueError(f"{path!r} is not a subclass of flwr.serverapp.strategy.Strategy")
    return strategy


def build(
    name: str, arguments: Mapping[str, Any], limits: Limits = DEFAULTS
) -> CohortStrategy | Screened:
    """Return an instance of the strategy ``name``, made with the keyword ``arguments``.

    A strategy that is not a `CohortStrategy` comes back behind `Screened`. A wrapper, such as
    Flower's for differential privacy, takes the name of another as its argument ``strategy``;
    that one gets the arguments that the wrapper does not know.

    Args:
        name: See `load`.
        arguments: What the class is called with.
        limits: What replies must keep to besides.

    Raises:
        ValueError: As for `load`, or the class does not take the arguments or refuses them.
    """
    strategy = _instance(load(name), arguments, limits)
    if not isinstance(strategy, CohortStrategy):
        strategy = Screened(strategy)
        strategy.limits = limits
    return strategy


def _instance(cls: type[Strategy], arguments: Mapping[str, Any], limits: Limits) -> Strategy:
    parameters = inspect.signature(cls).parameters
    if "strategy" in parameters and "strategy" in arguments:
        own = {key: value for key, value in arguments.items() if key in parameters}
        others = {key: value for key, value in arguments.items() if key not in parameters}
        inner = _wrapped(str(own["strategy"]), others, limits)
        arguments = {**own, "strategy": inner}
    defaults = {key: value for key, value in WHOLE_COHORT.items() if key in parameters}
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    accepted = [key for key in parameters if key not in WHOLE_COHORT]
    unknown = [
        key for key in arguments if key in WHOLE_COHORT or (key not in accepted and not takes_any)
    ]
    if unknown:
        takes = ", ".join(accepted) or "no arguments"
        raise ValueError(f"{cls.__name__} does not take {', '.join(unknown)}; it takes: {takes}")
    try:
        strategy = cls(**{**defaults, **arguments})
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from error
    if isinstance(strategy, CohortStrategy):
        strategy.limits = limits
    return strategy


def _wrapped(name: str, arguments: Mapping[str, Any], limits: Limits) -> Strategy:
    """Return the strategy inside a wrapper, which reads what clients send as their models."""
    cls = load(name)
    own_mod = getattr(cls, "client_mod", CohortStrategy.client_mod)
    sends_models = getattr(cls, "train_type", MessageType.TRAIN) == MessageType.TRAIN
    if own_mod is not CohortStrategy.client_mod or not sends_models:
        raise ValueError(f"strategy = {name!r}: give one whose clients send models, as fedavg's do")
    return _instance(cls, arguments, limits)


def client_mod(name: str) -> Mod | None:
    """Return the client-side mod of the strategy ``name``, None where it has none.

    Raises:
        ValueError: As for `load`.
    """
    mod: Mod | None = getattr(load(name), "client_mod", None)
    return mod
