"""Checks of the arrays that stay on the clients (`fedavg_app.client.local_arrays`)."""

import logging

from flwr.app import MessageType

from fedavg_app.client.local_arrays import patterns
from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.server.global_model import GlobalModel
from strategies.rounds.local_arrays import matching
from strategies.rounds.runner import Runner

logger = logging.getLogger("fedavg_app.local_arrays")


def check_local_arrays(config: RunConfig, model: GlobalModel, strategy: Runner) -> None:
    """Check that local arrays are some of those that travel otherwise, and all that have to be.

    Raises:
        ConfigError: They are not, or the strategy has none that it could train.
    """
    given, names = config.local_arrays, model.arrays.sent
    clipped = [name for name in model.sent if name.endswith("running_mean")]
    if strategy.clips_on_clients and clipped:
        fix = f"its client mods would clip {clipped[0]!r} with the update; give a network without "
        fix += "batch normalisation, or name its arrays in local-arrays"
        raise ConfigError("strategy", config.strategy, fix)
    released = [name for name in model.arrays.buffers if name in model.sent]
    if strategy.counts_privacy and released:
        fix = f"epsilon would not cover {', '.join(released)}, which are averaged without clipping "
        fix += "and noise; name them here, too, or give a network without such arrays"
        raise ConfigError("local-arrays", given, fix)
    if not given:
        return
    for pattern in patterns(given) or [given]:
        if not matching(names, [pattern]):
            fix = f"{pattern!r} matches no array that clients send; there are: {', '.join(names)}"
            raise ConfigError("local-arrays", given, fix)
    if not set(model.arrays.trained) & set(model.sent):
        raise ConfigError("local-arrays", given, "nothing would be federated; give fewer")
    if strategy.train_type != MessageType.TRAIN:
        fix = f"{config.method}'s clients send gradients and train nothing; give another strategy"
        raise ConfigError("local-arrays", given, fix)


def warn_of_unknown_objective(config: RunConfig, name: str) -> None:
    """Log that a run has no objective if arrays are local and clients do not evaluate."""
    if config.local_arrays and not config.fraction_evaluate:
        logger.warning(
            "local-arrays = %r with fraction-evaluate = 0: the clients' own %s will not be "
            "known, so there is no best model, and neither a target nor patience ends the run; "
            "give fraction-evaluate, as 1.0",
            config.local_arrays,
            name,
        )
