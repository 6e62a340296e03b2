"""Runs a strategy's rounds in another app, under Flower's `Strategy.start`."""

import logging
from collections.abc import Iterable, Iterator, Sequence

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from ..method import Ask, Method
from ..selection import Candidate
from .exchange import Exchange
from .flower_arrays import message_bytes, records_bytes
from .runner import MAX_EMPTY_ROUNDS, StrategyError
from .strategy_runner import StrategyRunner
from .values import OTHER_APP, Round, RoundOutcome


class StartRunner(StrategyRunner):
    """Runs the rounds of a strategy for nodes that are drawn at random; counts bytes and failures.

    Args:
        strategy: The strategy.
        sampling: Draws the nodes.

    Attributes:
        traffic: The bytes of the messages so far, and of the same messages if each had the model.
    """

    def __init__(self, strategy: Method, sampling: FedAvg) -> None:
        super().__init__(strategy, OTHER_APP)
        self._sampling = sampling
        self.traffic = dict.fromkeys(("down", "up", "models down", "models up"), 0)
        self._empty, self._reasons = 0, ""  # rounds in a row without a usable reply, and why

    def nodes(self, server_round: int, grid: Grid, *, trains: bool) -> list[int]:
        """Return the nodes that Flower's FedAvg draws."""
        draw = self._sampling.configure_train if trains else self._sampling.configure_evaluate
        drawn = draw(server_round, ArrayRecord(), ConfigRecord(), grid)
        return [message.metadata.dst_node_id for message in drawn]

    def available(self, grid: Grid) -> tuple[Sequence[Candidate], int]:
        """Return all nodes, once there are enough, and how many take part."""
        drawn, own = self._sampling, self._sampling.min_available_nodes
        everyone = FedAvg(min_train_nodes=drawn.min_train_nodes, min_available_nodes=own)
        messages = everyone.configure_train(0, ArrayRecord(), ConfigRecord(), grid)
        nodes = sorted(message.metadata.dst_node_id for message in messages)
        count = max(int(len(nodes) * drawn.fraction_train), drawn.min_train_nodes)
        return [Candidate(node, node) for node in nodes], count

    def messages(self, now: Round, ask: Ask) -> list[Message]:
        """Return one message for each of the nodes that are asked; count their bytes."""
        messages = super().messages(now, ask)
        self.traffic["down"] += sum(map(message_bytes, messages))
        self._model_bytes = records_bytes([now.model.record, self._local.initial])
        self.traffic["models down"] += len(messages) * self._model_bytes if ask.is_main else 0
        return messages

    def finish_round(self, replies: Iterable[Message]) -> RoundOutcome:
        """Return the round's outcome.

        Raises:
            StrategyError: The strategy failed, or every reply was rejected in `MAX_EMPTY_ROUNDS`
                rounds in a row.
        """
        outcome = super().finish_round(replies)
        if outcome.model is not None:
            self._empty = 0
        elif outcome.rejected and not outcome.num_resyncing:
            self._empty += 1
            self._reasons = "; ".join(sorted(set(map(str, outcome.rejected.values())))[:3])
            if self._empty == MAX_EMPTY_ROUNDS:
                raise StrategyError(
                    f"no usable reply in {self._empty} rounds in a row: {self._reasons}"
                )
        return outcome

    def end_training(self, *, trained: bool) -> None:
        """Log the bytes of the messages, and of the same messages if each had the model.

        Raises:
            StrategyError: No round gave a model, since every reply was rejected.
        """
        if self._reasons and not trained:
            raise StrategyError(f"no usable reply in any round: {self._reasons}")
        parts = []
        for way in ("down", "up"):
            own, full = self.traffic[way], self.traffic[f"models {way}"]
            times = full / max(own, 1)
            parts.append(f"{own:,} bytes {way} (full models: {full:,}, {times:.3g} times as many)")
        logging.getLogger("flwr").info("Sent %s", ", ".join(parts))

    def counted(self, exchange: Exchange, replies: Iterable[Message]) -> Iterator[Message]:
        """Yield the replies, and count their bytes."""
        for reply in replies:
            if reply.has_content():
                self.traffic["up"] += message_bytes(reply)
                self.traffic["models up"] += self._model_bytes if exchange.trains else 0
            yield reply
