"""FedNova: averages of updates that are normalised by the clients' numbers of steps.

J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor: Tackling the Objective Inconsistency Problem in
Heterogeneous Federated Optimization. NeurIPS 2020, arXiv 2007.07481, section 4.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from .base import Aggregate, FederatedStrategy, Reply, Round, Terms, Vector, change_norm, difference


@dataclass(kw_only=True, eq=False)
class FedNova(FederatedStrategy):
    """FedNova: the model moves by sum_k p_k tau_k times the mean of the clients' steps.

    w <- w + tau sum_k p_k (w_k - w) / tau_k with tau = sum_k p_k tau_k: a client with more steps
    tau_k, since it has more examples, pulls the model no further than its share p_k. If all clients
    take equally many steps it is FedAvg. The clients are FedAvg's, without momentum; tau_k follows
    from "local-steps", or "local-epochs" and "batch-size", in their settings.

    Args:
        weights: "samples": p_k is n_k / n; "uniform": all are equal.

    The others are those of Flower's `FedAvg`.
    """

    plain_sgd: ClassVar[bool] = True
    needs: ClassVar[tuple[str, ...]] = ("batch-size",)

    def read(self, now: Round, reply: Reply) -> Terms:
        """Return (w_k - w) / tau_k, and tau_k."""
        steps = step_count(now.config, reply.report.num_examples)
        update = difference(reply.vector, now.model.vector, float) / steps
        return update, np.array(float(steps))

    def update_norm(self, now: Round, terms: Terms, reply: Reply) -> float:
        """Return the norm of w_k - w."""
        return change_norm(reply.vector, now.model.vector)

    def step(self, now: Round, aggregate: Aggregate) -> Vector:
        """Return w + tau times the mean normalised update."""
        mean, tau = aggregate.means
        return now.model.vector + float(tau) * mean


def step_count(config: Mapping[str, Any], num_examples: float) -> int:
    """Return the steps of a client with this many examples.

    Args:
        config: The message's "local-steps", or "local-epochs" and "batch-size" (0 for one batch).
        num_examples: n_k.
    """
    if config.get("local-steps"):
        return int(config["local-steps"])
    size = int(config.get("batch-size", 0)) or num_examples or 1
    return int(config.get("local-epochs", 1)) * max(int(-(-num_examples // size)), 1)
