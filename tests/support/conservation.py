"""Checks that no update is lost or counted twice, by sums that do not use the protocol's own.

What clients trained is seen inside of the strategy's mod, what the server accepted where it decodes
it. From these follow the global model's change, the residual that each client must have, and with
`ef21` both ends' estimates. All clients must be in the server's process.
"""

from collections import defaultdict

import numpy as np
from flwr.app import ArrayRecord

from strategies.client_state import FEEDBACK, VERSION
from strategies.flower_arrays import from_record, get_record
from strategies.reply_validation import ARRAYS

# For the key "client-mods".
MOD = "tests.support.conservation:note_change"


class ConservationCheck:
    """The sums of one run, which must have `MOD` in its "client-mods".

    Args:
        strategy: The server's; what it accepts is noted. Its clients keep a residual or an
            estimate, and no momentum, which enters the residual as well.
    """

    # The one made last, for `note_change`.
    current = None

    def __init__(self, strategy):
        ConservationCheck.current = self
        self.strategy, self.feedback = strategy, strategy.codec.feedback
        # By node, since it lost its state: the changes, and the accepted updates by the time of
        # its last training, and by now.
        self.trained, self.settled = defaultdict(float), defaultdict(float)
        self.accepted = defaultdict(float)
        self.estimates = {}  # with EF21, by node, since the estimate began
        self.round, self.steps = [], 0.0
        self._accumulate, self._finalize = strategy.accumulate, strategy.finalize
        strategy.accumulate, strategy.finalize = self._note_update, self._note_round

    def error_of_model(self, initial, final):
        """Return the largest error of an entry: the steps less the change and the residual."""
        residual = self.strategy.residual
        left = self.steps - (flat(final) - flat(initial))
        return np.abs(left if residual is None else left - residual).max()

    def error_of_clients(self, contexts):
        """Return the largest error of an entry of a client's residual, or of an estimate."""
        (name,) = self.feedback.memories
        errors = []
        for context in contexts:
            node = context.node_id
            if node in self.estimates:
                errors.append(self.strategy.update_sum[node] - self.estimates[node])
            if FEEDBACK in context.state:
                kept = np.frombuffer(context.state[FEEDBACK][name].data, np.float32)
                expected = self.settled[node]
                if not self.feedback.keeps_estimates:
                    expected = self.trained[node] - expected
                errors.append(expected - kept)
        return max(np.abs(error).max() for error in errors)

    def _note_update(self, update):
        self.round.append(update)
        self._accumulate(update)

    def _note_round(self, model):
        counted = self.estimates if self.feedback.keeps_estimates else {}
        for update in self.round:
            node, sent = update.report.node_id, update.content.update.to_dense().astype(np.float64)
            self.accepted[node] = self.accepted[node] + sent
            counted[node] = sent + (0.0 if update.content.anew else counted.get(node, 0.0))
        self.steps = self.steps + np.mean(list(counted.values()), axis=0)
        self.round = []
        return self._finalize(model)


def note_change(message, context, call_next):
    """Note what the training of this client changes; evaluation passes through."""
    if not message.metadata.message_type.startswith("train"):
        return call_next(message, context)
    check, node = ConservationCheck.current, context.node_id
    before = flat(get_record(message.content, ARRAYS, ArrayRecord))
    reply = call_next(message, context)
    if VERSION not in context.state:  # it has lost its state, or is new
        for sums in (check.trained, check.settled, check.accepted):
            sums.pop(node, None)
    change = flat(get_record(reply.content, ARRAYS, ArrayRecord)) - before
    check.trained[node] = check.trained[node] + change
    check.settled[node] = check.accepted[node]
    return reply


def flat(arrays):
    """Return all entries of the model, in float64."""
    parts = [array.reshape(-1) for array in from_record(arrays).values()]
    return np.concatenate(parts).astype(np.float64)
