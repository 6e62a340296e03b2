"""Saves a run's state every few rounds (`fedavg_app.results.checkpoint`)."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from fedavg_app.callbacks.base import Callback, TrainingRun
from fedavg_app.config import RunConfig
from fedavg_app.results.checkpoint import RunState, save_checkpoint
from fedavg_app.results.metrics import RoundMetrics
from strategies.base import FederatedStrategy


@runtime_checkable
class ClientStateGrid(Protocol):
    """A grid that can save and restore its clients' states."""

    def client_states(self) -> dict[int, bytes]:
        """Return the clients' states, pickled, by partition."""

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `client_states` returned."""


class Checkpointer(Callback):
    """A callback that saves the run's state every "checkpoint-every" rounds.

    Args:
        run: The training.
        strategy: The strategy.
        grid: Its clients' states are saved if it is a `ClientStateGrid`.
        best_model: Returns the best model so far.
    """

    def __init__(
        self,
        run: TrainingRun,
        strategy: FederatedStrategy[Any],
        grid: Grid | None = None,
        best_model: Callable[[], ArrayRecord | None] = lambda: None,
    ) -> None:
        self._run, self._strategy, self._grid = run, strategy, grid
        self._best_model = best_model

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Save a checkpoint if one is due.

        Raises:
            RunError: It cannot be written, or the strategy cannot be pickled.
        """
        config = self._run.config
        assert isinstance(config, RunConfig)
        if metrics.round % config.checkpoint_every == 0:
            grid, states = self._grid, dict[int, bytes]()
            if isinstance(grid, ClientStateGrid):
                states = grid.client_states()
            state = RunState(
                self._strategy, model, [metrics], self._run.data.fingerprint, states,
                self._best_model(),
            )  # fmt: skip
            save_checkpoint(self._run.folder, config, state)
