"""One long-lived Ray actor: it runs the same ClientApp as everywhere, for the clients it owns."""

import os
import traceback

import torch
from flwr.app import Context, Message, RecordDict, UserConfig

from fedavg_app.client_app import app
from fedavg_app.internals import error_reply
from fedavg_app.nodes import PARTITION_ID


class Worker:
    """Handles the messages of its clients and keeps their contexts; made a Ray actor by `RayGrid`.

    Args:
        run_id: The run's number.
        run_config: The run config that clients see.
        num_clients: K.
    """

    def __init__(self, run_id: int, run_config: UserConfig, num_clients: int) -> None:
        torch.set_num_threads(1)
        self._run_id, self._run_config, self._num_clients = run_id, run_config, num_clients
        self._contexts: dict[int, Context] = {}

    def handle(self, partitions: list[int], messages: list[Message]) -> list[Message]:
        """Return one reply per message: the ClientApp's, or an error reply where it raised."""
        return [
            self._handle(self._context(number, message), message)
            for number, message in zip(partitions, messages, strict=True)
        ]

    def process_id(self) -> int:
        """Return this actor's process id."""
        return os.getpid()

    def _handle(self, context: Context, message: Message) -> Message:
        try:
            return app(message, context)
        except Exception as error:
            reason = "".join(traceback.format_exception_only(error)).strip()
            return error_reply(message, reason)

    def _context(self, number: int, message: Message) -> Context:
        if number not in self._contexts:
            self._contexts[number] = Context(
                run_id=self._run_id,
                node_id=message.metadata.dst_node_id,
                node_config={PARTITION_ID: number, "num-partitions": self._num_clients},
                state=RecordDict(),
                run_config=self._run_config,
            )
        return self._contexts[number]
