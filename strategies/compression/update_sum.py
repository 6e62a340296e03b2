"""Weighted sums of the clients' updates over a round, or of what is known of them over all rounds.

Both add in the order of `add`, in float64, and change what they keep from earlier rounds only in
`finish`: the updates of a round that fails are dropped by `reset`.
"""

import numpy as np
from numpy.typing import NDArray

from strategies.compression.decoded_update import DenseUpdate, Update, Vector


class UpdateSum:
    """The sum of the updates of one round."""

    def __init__(self) -> None:
        self._total: NDArray[np.float64] = np.empty(0)
        self._weight = 0.0

    def __contains__(self, node: int) -> bool:
        """Return whether an update of the client may build on earlier ones: any may."""
        return True

    def changed(self, node: int, update: Update, *, anew: bool) -> Update:
        """Return what counts of the client once its update is added: the update itself."""
        return update

    def add(self, node: int, update: Update, weight: float, *, anew: bool) -> None:
        """Add a client's decoded update; with ``anew``, earlier ones do not count any more."""
        if not self._weight:
            self._total = np.zeros(update.size)
        update.add_to(self._total, weight)
        self._weight += weight

    def finish(self) -> tuple[NDArray[np.float64], float]:
        """Return the weighted sum, float64 (n,), and the sum of the weights."""
        return self._total, self._weight

    def reset(self) -> None:
        """Drop the round's updates."""
        self._total, self._weight = np.empty(0), 0.0

    def forget(self, node: int | None = None) -> None:
        """Called when a client, or every one, has lost its memory; it does nothing."""


class EstimateSum(UpdateSum):
    """The sum of one estimate for each client heard from, which its updates change (`EF21`).

    The estimates take as much memory as a model for each client.
    """

    def __init__(self) -> None:
        super().__init__()
        self._estimates: dict[int, tuple[Vector, float]] = {}
        self._changes: list[tuple[int, Update, float, bool]] = []

    def __contains__(self, node: int) -> bool:
        """Return whether there is an estimate that the client's next update can change."""
        return node in self._estimates

    def __getitem__(self, node: int) -> Vector:
        """Return the estimate of a client's update, float32 (n,)."""
        return self._estimates[node][0]

    def changed(self, node: int, update: Update, *, anew: bool) -> Update:
        """Return the estimate of the client that its update leads to."""
        # In float32, as the client does, so that both ends have the same estimate.
        return update if anew else DenseUpdate(self[node] + update.to_dense())

    def add(self, node: int, update: Update, weight: float, *, anew: bool) -> None:
        """Keep an update, which changes the client's estimate, or zero where it begins anew."""
        self._changes.append((node, update, weight, anew))

    def finish(self) -> tuple[NDArray[np.float64], float]:
        """Change the estimates; return their weighted sum, and the sum of the weights."""
        for node, update, weight, anew in self._changes:
            if not self._estimates:
                self._total = np.zeros(update.size)
            after = self.changed(node, update, anew=anew).to_dense()
            self._count(after, weight)
            if node in self._estimates:
                before, weight_before = self._estimates[node]
                self._count(before, -weight_before)
            self._estimates[node] = after, weight
        return self._total, self._weight

    def reset(self) -> None:
        """Drop the round's updates; the estimates stay."""
        self._changes = []

    def forget(self, node: int | None = None) -> None:
        """Drop the client's estimate, or every one: it does not count any more."""
        if node in self._estimates:
            estimate, weight = self._estimates.pop(node)
            self._count(estimate, -weight)
        if node is None or not self._estimates:
            self._estimates.clear()
            self._total, self._weight = np.empty(0), 0.0

    def _count(self, estimate: Vector, weight: float) -> None:
        self._total += weight * estimate.astype(np.float64)
        self._weight += weight
