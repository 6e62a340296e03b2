"""Whether a run's clients can be trained several at once: asked before it starts."""

from flwr.app import MessageType

from fedavg_app.config import RunConfig
from fedavg_app.errors import ConfigError
from fedavg_app.server.run_components import Components
from tasks.vectorised_check import check_vectorised


def check_joint_training(config: RunConfig, components: Components) -> None:
    """Check that the clients of a run can be trained in vectorised passes.

    Raises:
        ConfigError: The strategy's clients do not run local SGD, or `torch.func.vmap` cannot train
            the task's model.
        DataError: The data set is not available.
    """
    key, value = "clients-per-batch", config.clients_per_batch
    if components.strategy.train_type != MessageType.TRAIN:
        fix = f"clients of {config.method} take no steps of SGD that could be vectorised; give 1"
        raise ConfigError(key, value, fix)
    task = components.task
    data = task.dataset(config.data_options)
    try:
        check_vectorised(task, data.train)
    except ValueError as error:
        fix = f"{task.name} cannot be trained for several clients at once: {error}; give 1"
        raise ConfigError(key, value, fix) from error
