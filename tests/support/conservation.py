"""Checks that no update is lost or counted twice, by sums that do not use the protocol's own.

What clients trained is seen inside of the strategy's mod, what the server accepted where it decodes
it. From these follow the global model's change, the residual that each client must have, and with
`ef21` both ends' estimates. All clients must be in the server's process.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable
from numpy.typing import NDArray

from strategies.aggregation import Arrays
from strategies.client_state import FEEDBACK, VERSION
from strategies.compressed_reply import CompressedReply
from strategies.compressed_server import CompressedStrategy
from strategies.compression.update_sum import EstimateSum
from strategies.flower_arrays import from_record, get_record
from strategies.reply_validation import ARRAYS, ClientUpdate

Sum = NDArray[np.floating[Any]]

# For the key "client-mods".
MOD = "tests.support.conservation:note_change"


class ConservationCheck:
    """The sums of one run, which must have `MOD` in its "client-mods".

    Args:
        strategy: The server's; what it accepts is noted.
    """

    # The one made last, for `note_change`.
    current: "ConservationCheck"

    def __init__(self, strategy: CompressedStrategy) -> None:
        ConservationCheck.current = self
        self.strategy = strategy
        # By node, since it lost its state: the changes, and the accepted updates by the time of
        # its last training, and by now.
        self._trained: dict[int, Sum | float] = defaultdict(float)
        self._settled: dict[int, Sum | float] = defaultdict(float)
        self._accepted: dict[int, Sum | float] = defaultdict(float)
        # With EF21, by node, since the estimate began.
        self._estimates: dict[int, Sum] = {}
        self._round: list[ClientUpdate[CompressedReply]] = []
        self._steps: Sum | float = 0.0
        self._accumulate, self._finalize = strategy.accumulate, strategy.finalize
        replaced: Any = strategy
        replaced.accumulate, replaced.finalize = self._note_update, self._note_round

    def note_training(self, node: int, change: Sum, *, without_state: bool) -> None:
        """Note what a client's training changed, and whether it had lost its state before."""
        if without_state:
            for sums in (self._trained, self._settled, self._accepted):
                sums.pop(node, None)
        self._trained[node] = self._trained[node] + change
        self._settled[node] = self._accepted[node]

    def error_of_model(self, initial: ArrayRecord, final: ArrayRecord) -> float:
        """Return the largest error of an entry: the steps less the change and the residual."""
        residual = self.strategy.residual
        left = self._steps - (_flat(final) - _flat(initial))
        return _largest(left if residual is None else left - residual)

    def error_of_clients(self, contexts: Iterable[Context]) -> float:
        """Return the largest error of an entry of a client's residual, or of an estimate.

        NaN where clients keep neither, or a momentum, which enters the residual as well.
        """
        if self.strategy.codec.feedback.memories not in [("residual",), ("estimate",)]:
            return float("nan")
        errors = []
        for context in contexts:
            node = context.node_id
            if node in self._estimates:
                sums = self.strategy.update_sum
                assert isinstance(sums, EstimateSum)
                errors.append(_largest(sums[node] - self._estimates[node]))
            if FEEDBACK in context.state:
                (name,) = self.strategy.codec.feedback.memories
                kept = get_record(context.state, FEEDBACK, ArrayRecord)[name]
                errors.append(_largest(self._memory(node) - np.frombuffer(kept.data, np.float32)))
        return max(errors)

    def _memory(self, node: int) -> Sum | float:
        if self.strategy.codec.feedback.keeps_estimates:
            return self._settled[node]
        return self._trained[node] - self._settled[node]

    def _note_update(self, update: ClientUpdate[CompressedReply]) -> None:
        self._round.append(update)
        self._accumulate(update)

    def _note_round(self, model: Arrays) -> Arrays:
        counted: dict[int, Sum] = (
            self._estimates if self.strategy.codec.feedback.keeps_estimates else {}
        )
        for update in self._round:
            node, sent = update.report.node_id, update.content.update.to_dense().astype(np.float64)
            self._accepted[node] = self._accepted[node] + sent
            counted[node] = sent + (0.0 if update.content.anew else counted.get(node, 0.0))
        self._steps = self._steps + np.mean(list(counted.values()), axis=0)
        self._round = []
        return self._finalize(model)


def note_change(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Note what the training of this client changes; evaluation passes through."""
    if not message.metadata.message_type.startswith("train"):
        return call_next(message, context)
    before = _flat(get_record(message.content, ARRAYS, ArrayRecord))
    reply = call_next(message, context)
    change = _flat(get_record(reply.content, ARRAYS, ArrayRecord)) - before
    is_first = VERSION not in context.state
    ConservationCheck.current.note_training(context.node_id, change, without_state=is_first)
    return reply


def _flat(arrays: ArrayRecord) -> Sum:
    """Return all entries of the model, in float64."""
    parts = [array.reshape(-1) for array in from_record(arrays).values()]
    return np.concatenate(parts).astype(np.float64)


def _largest(difference: Sum | float) -> float:
    return float(np.abs(difference).max())
