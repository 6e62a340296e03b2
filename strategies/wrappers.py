"""Strategies of Flower's around other strategies, such as those for differential privacy."""

import sys

from flwr.serverapp.strategy import Strategy


def refuse_wrapper(strategy: Strategy) -> None:
    """Check that the method that calls this is not itself called by another strategy.

    Wrappers clip and add noise to the models that they find in messages. They find none where
    clients send updates, and say nothing.

    Raises:
        ValueError: It is.
    """
    caller = sys._getframe(2).f_locals.get("self")
    if isinstance(caller, Strategy) and caller is not strategy:
        names = f"{type(strategy).__name__} inside of {type(caller).__name__}"
        raise ValueError(f"{names}: give a strategy whose clients send models, as FedAvg's do")
