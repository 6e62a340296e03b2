"""What an operator asks a SuperLink for on its own machine: health, and metrics for Prometheus."""

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr.proto.fleet_pb2 import PullMessagesResponse
from starlette.responses import JSONResponse, PlainTextResponse, Response

from deployment.superlink.connections import BoundedHTTPProtocol

# A device counts as offline after this long without a request, as for Flower.
ONLINE_SECONDS = 60.0
# How long health stays bad after a request that the SuperLink could not answer.
FAILED_SECONDS = 60.0
# Lines logged of one device's refused requests; all are counted.
LOGGED = 20
# Nodes and addresses that are told apart where requests are not authorised.
SOURCES = 1000

_log = logging.getLogger("flwr")


@dataclass
class Monitor:
    """Counts what devices send, and answers ``/metrics`` and ``/health``."""

    last_seen: dict[int, float] = field(default_factory=dict)  # by node, in monotonic seconds
    last_reply: dict[int, float] = field(default_factory=dict)
    replies: Counter[int] = field(default_factory=Counter)
    refusals: Counter[tuple[int, str]] = field(default_factory=Counter)
    strangers: Counter[str] = field(default_factory=Counter)  # by node or address
    bytes_in: int = 0
    bytes_out: int = 0
    run_id: int = 0
    server_round: int = 0
    last_failure: float = -math.inf

    def served(self, bytes_in: int, bytes_out: int) -> None:
        """Count the bytes of a request that was served."""
        self.bytes_in += bytes_in
        self.bytes_out += bytes_out

    def asked(self, node_id: int, given: PullMessagesResponse) -> None:
        """Note that a device has asked for messages, and what the run sends it."""
        self.last_seen[node_id] = time.monotonic()
        for message in given.messages_list:
            run_id, group = message.metadata.run_id, message.metadata.group_id
            if run_id != self.run_id:
                self.run_id, self.server_round = run_id, 0
            if group.isdigit():  # other messages ask for properties
                self.server_round = int(group)

    def replied(self, node_id: int) -> None:
        """Count a reply that was taken in."""
        self.last_reply[node_id] = time.monotonic()
        self.replies[node_id] += 1

    def failed_to_answer(self, why: str) -> None:
        """Note that the SuperLink could not answer a request; log the first in a while."""
        if not self._is_failing():
            _log.error("the SuperLink cannot answer: %s", why)
        self.last_failure = time.monotonic()

    def refused(self, node_id: int, name: str, reason: str) -> None:
        """Count a refused request, and log it."""
        self.refusals[node_id, name] += 1
        of_node = sum(count for (node, _), count in self.refusals.items() if node == node_id)
        if of_node <= LOGGED or self.refusals[node_id, name] == 1:
            _log.warning("refused %s of node %d: %s", name, node_id, reason[:500])

    def unauthorised(self, source: str, name: str) -> None:
        """Count a request whose signature is not that of the node it names, and log the first.

        Args:
            source: The node whose key signed it, or the address of a stranger.
            name: The request's.
        """
        if source not in self.strangers and len(self.strangers) >= SOURCES:
            source = "others"
        self.strangers[source] += 1
        if self.strangers[source] == 1:
            _log.warning("%s of %s is not signed by a registered key of its node", name, source)

    def answer(self, path: str) -> Response | None:
        """Return the answer to a request of this machine; None for other paths."""
        if path == "/metrics":
            return PlainTextResponse(self._metrics(), media_type="text/plain; version=0.0.4")
        if path == "/health" and self._is_failing():
            return JSONResponse(
                {"detail": "requests fail: is the database locked, or the disk full?"}, 503
            )
        return None

    def _is_failing(self) -> bool:
        return time.monotonic() - self.last_failure < FAILED_SECONDS

    def _metrics(self) -> str:
        now = time.monotonic()
        online = sum(now - last < ONLINE_SECONDS for last in self.last_seen.values())
        since = {node: f"{now - last:.1f}" for node, last in self.last_reply.items()}
        lines = [
            *_family("nodes_online", "Devices that asked in the last minute.", {"": online}),
            *_family("run", "The round of the run that sent the last message.",
                     {f'run_id="{self.run_id}"': self.server_round}),
            *_family("replies_total", "Replies that were announced.", _labelled(self.replies)),
            *_family("last_reply_seconds", "Seconds since the last reply.", _labelled(since)),
            *_family("refused_total", "Requests that were refused.",
                     {f'node="{node}",request="{name}"': count
                      for (node, name), count in self.refusals.items()}),
            *_family("unauthorised_total", "Requests without a valid signature.",
                     _labelled(self.strangers, "source")),
            *_family("connections_open", "Connections that are open.",
                     {"": BoundedHTTPProtocol.connected.total()}),
            *_family("connections_refused_total", "Connections beyond the bound.",
                     _labelled(BoundedHTTPProtocol.refused, "address")),
            *_family("bytes_total", "Bytes of requests and of answers.",
                     {'direction="in"': self.bytes_in, 'direction="out"': self.bytes_out}),
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def _labelled(values: Mapping[Any, Any], label: str = "node") -> dict[str, Any]:
    return {f'{label}="{key}"': value for key, value in values.items()}


def _family(name: str, text: str, values: Mapping[str, Any]) -> list[str]:
    """Return a metric's lines in Prometheus' format: a value for each set of labels."""
    kind = "counter" if name.endswith("_total") else "gauge"
    samples = [
        f"fedavg_{name}{{{labels}}} {value}" if labels else f"fedavg_{name} {value}"
        for labels, value in values.items()
    ]
    return [f"# HELP fedavg_{name} {text}", f"# TYPE fedavg_{name} {kind}", *samples]
