"""FedNova: averages of updates that are normalised by the clients' numbers of steps.

J. Wang, Q. Liu, H. Liang, G. Joshi, H. V. Poor: Tackling the Objective Inconsistency Problem in
Heterogeneous Federated Optimization. NeurIPS 2020, arXiv 2007.07481, section 4.
"""

import numpy as np

from strategies.aggregation import Arrays, WeightedMean, moved, without
from strategies.fedavg import FedAvg
from strategies.flower_arrays import from_record
from strategies.local_steps import local_steps
from strategies.registry import Weights
from strategies.reply_validation import ClientUpdate


class FedNova(FedAvg):
    """FedNova: the model moves by sum_k p_k tau_k times the mean of the clients' steps.

    w <- w + tau sum_k p_k (w_k - w) / tau_k with tau = sum_k p_k tau_k: a client with more steps
    tau_k, since it has more examples, pulls the model no further than its share p_k. Where all
    clients take equally many steps it is FedAvg. The clients are FedAvg's, without momentum.

    Args:
        weights: "samples": p_k is n_k / n; "uniform": all are equal.
    """

    plain_sgd = True

    def __init__(self, weights: Weights = "samples") -> None:
        super().__init__(weights)

    def accumulate(self, update: ClientUpdate[Arrays]) -> None:
        """Add p_k (w_k - w) / tau_k and p_k tau_k to their sums."""
        examples = update.report.num_examples
        weight = examples if self.weights == "samples" else 1.0
        steps = local_steps(self.config, examples)
        sent = from_record(self.model)
        trained = without(update.content, self.settings.buffers)
        self.mean.add(
            {name: np.subtract(w, sent[name], dtype=float) / steps for name, w in trained.items()},
            weight,
        )
        self.steps.add({"tau": np.array(float(steps))}, weight)
        self.buffer_mean.add(update.content, weight)

    def finalize(self, model: Arrays) -> Arrays:
        """Return w + tau times the mean normalised update."""
        tau = float(self.steps.result()["tau"])
        changes = {name: tau * mean.astype(float) for name, mean in self.mean.result().items()}
        return moved(model, changes)

    def reset(self) -> None:
        """Begin with empty sums."""
        super().reset()
        self.steps = WeightedMean()
