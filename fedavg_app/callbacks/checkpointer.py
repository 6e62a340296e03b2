"""Saves a run's state every few rounds (`fedavg_app.results.checkpoint`)."""

from collections.abc import Mapping
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

    def changed_states(self) -> dict[int, bytes | None]:
        """Return, by partition, the states changed since the last call, pickled; None for none."""

    def restore_states(self, states: Mapping[int, bytes]) -> None:
        """Give clients the states that `changed_states` returned."""


class Checkpointer(Callback):
    """A callback that saves the run's state every "checkpoint-every" rounds.

    Args:
        run: The training.
        strategy: The strategy.
        grid: Its clients' states are saved if it is a `ClientStateGrid`.
        client_files: The files of the clients' states in the checkpoint that was resumed.
    """

    def __init__(
        self,
        run: TrainingRun,
        strategy: FederatedStrategy[Any],
        grid: Grid | None = None,
        client_files: Mapping[int, str] | None = None,
    ) -> None:
        self._run, self._strategy, self._grid = run, strategy, grid
        self._client_files = dict(client_files or {})

    def on_round_end(self, metrics: RoundMetrics, model: ArrayRecord) -> None:
        """Save a checkpoint if one is due.

        Raises:
            RunError: It cannot be written, or the strategy cannot be pickled.
        """
        config = self._run.config
        assert isinstance(config, RunConfig)
        if metrics.round % config.checkpoint_every == 0:
            grid, changed = self._grid, dict[int, bytes | None]()
            if isinstance(grid, ClientStateGrid):
                changed = grid.changed_states()
            state = RunState(
                self._strategy, model, [metrics], self._run.data.fingerprint,
                client_files=self._client_files,
            )  # fmt: skip
            self._client_files = save_checkpoint(self._run.folder, config, state, changed)
