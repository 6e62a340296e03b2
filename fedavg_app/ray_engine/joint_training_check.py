"""Whether a run's clients can be trained several at once: asked before it starts."""

from flwr.app import MessageType

from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import PreparedRun
from tasks.vectorised_check import check_vectorised


def check_joint_training(prepared: PreparedRun) -> None:
    """Check that the clients of a run can be trained in vectorised passes.

    Raises:
        ConfigError: The strategy's clients do not run local SGD, or `torch.func.vmap` cannot train
            the task's model.
    """
    config, task = prepared.config, prepared.task
    key, value = "clients-per-batch", config.clients_per_batch
    if prepared.strategy.train_type != MessageType.TRAIN:
        fix = f"clients of {config.method} take no steps of SGD that could be vectorised; give 1"
        raise ConfigError(key, value, fix)
    try:
        check_vectorised(task, prepared.data.train)
    except ValueError as error:
        fix = f"{task.name} cannot be trained for several clients at once: {error}; give 1"
        raise ConfigError(key, value, fix) from error
