"""SignSGD with majority vote.

J. Bernstein, Y.-X. Wang, K. Azizzadenesheli, A. Anandkumar: signSGD: Compressed Optimisation for
Non-Convex Problems. ICML 2018, arXiv 1802.04434; as compared to in Sattler et al. 2020.
"""

import math
from collections.abc import Sequence

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

from strategies.compressed import CompressedStrategy
from strategies.compressed_client import Codec, train_compressed
from strategies.compression.layout import Layout
from strategies.compression.signs import Signs
from strategies.compression.theory import sign_bits
from strategies.compression.update import Update, Vector


class SignSGD(CompressedStrategy):
    """SignSGD: clients send the signs of their update; the majority moves each weight one step.

    No error feedback. Votes that tie, and weights nobody moves, leave the weight as it is. The
    clients' learning rate hardly matters with one local step: only the sign of it is sent, which
    is 0 where the step is lost in the weight's rounding.

    Args:
        step_size: delta, how far a weight moves in a round (the authors' experiments: 0.0002).

    Raises:
        ValueError: An argument out of its range.
    """

    def __init__(self, step_size: float = 0.0002) -> None:
        super().__init__()
        number = isinstance(step_size, int | float) and not isinstance(step_size, bool)
        if not (number and 0 < float(np.float32(step_size)) < np.inf):
            raise ValueError(f"step-size = {step_size}: give a positive number")
        self.step_size = float(step_size)

    def settings(self) -> dict[str, float | str]:
        """Return nothing: signs need no settings."""
        return {}

    def decode_update(self, data: bytes) -> Update:
        """Return a client's signs.

        Raises:
            CodecError: The bytes are none.
        """
        return Signs.decode(data, self.layout.size)

    def combine(self, updates: Sequence[Update], replies: Sequence[Message]) -> Update:
        """Return one step in the direction that most clients voted for, weight by weight."""
        del replies  # every client has one vote
        votes = np.zeros(self.layout.size, np.int64)
        for update in updates:
            assert isinstance(update, Signs)
            votes += update.signs
        return Signs(self.step_size, np.sign(votes).astype(np.int8))

    def theory_update_bits(self) -> tuple[float, float]:
        """Return one bit an entry, up and down."""
        return sign_bits(self.layout.size), sign_bits(self.layout.size)

    def theory_download_bits(self, lacking: int) -> float:
        """Return log2(2s + 1) bits an entry: a sum of s signs has so many values."""
        return self.layout.size * math.log2(2 * lacking + 1)

    @staticmethod
    def client_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Send the signs of the update."""
        return train_compressed(message, context, call_next, CODEC)


def _compress(update: Vector, layout: Layout, config: ConfigRecord) -> Signs:
    del layout, config
    return Signs(1.0, np.sign(update).astype(np.int8))


def _decode(data: bytes, layout: Layout, config: ConfigRecord) -> Signs:
    del config
    return Signs.decode(data, layout.size)


CODEC = Codec(_compress, _decode, error_feedback=False)
