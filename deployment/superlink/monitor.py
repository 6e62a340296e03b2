"""What an operator asks a SuperLink for on its own machine: health, and metrics for Prometheus."""

import logging
import math
import time
from collections import Counter
from dataclasses import dataclass, field

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

    def failed_to_answer(self) -> None:
        """Note that the SuperLink could not answer a request."""
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
        if path == "/health" and time.monotonic() - self.last_failure < FAILED_SECONDS:
            return JSONResponse(
                {"detail": "requests fail: is the database locked, or the disk full?"}, 503
            )
        return None

    def _metrics(self) -> str:
        now = time.monotonic()
        online = sum(now - last < ONLINE_SECONDS for last in self.last_seen.values())
        lines = _family("nodes_online", "gauge", "Devices that asked for work in the last minute.")
        lines.append(f"fedavg_nodes_online {online}")
        lines += _family("run", "gauge", "The round of the run that sent the last message.")
        lines.append(f'fedavg_run{{run_id="{self.run_id}"}} {self.server_round}')
        lines += _family("replies_total", "counter", "Replies that were announced.")
        lines += [f'fedavg_replies_total{{node="{n}"}} {c}' for n, c in self.replies.items()]
        lines += _family("last_reply_seconds", "gauge", "Seconds since the last reply.")
        lines += [
            f'fedavg_last_reply_seconds{{node="{node}"}} {now - last:.1f}'
            for node, last in self.last_reply.items()
        ]
        lines += _family("refused_total", "counter", "Requests that were refused.")
        lines += [
            f'fedavg_refused_total{{node="{node}",request="{name}"}} {count}'
            for (node, name), count in self.refusals.items()
        ]
        lines += _family("unauthorised_total", "counter", "Requests without a valid signature.")
        lines += [
            f'fedavg_unauthorised_total{{source="{source}"}} {count}'
            for source, count in self.strangers.items()
        ]
        connected = BoundedHTTPProtocol.connected.total()
        lines += _family("connections_open", "gauge", "Connections that are open.")
        lines.append(f"fedavg_connections_open {connected}")
        lines += _family("connections_refused_total", "counter", "Connections beyond the bound.")
        lines += [
            f'fedavg_connections_refused_total{{address="{address}"}} {count}'
            for address, count in BoundedHTTPProtocol.refused.items()
        ]
        lines += _family("bytes_total", "counter", "Bytes of requests and of answers.")
        lines.append(f'fedavg_bytes_total{{direction="in"}} {self.bytes_in}')
        lines.append(f'fedavg_bytes_total{{direction="out"}} {self.bytes_out}')
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP fedavg_{name} {text}", f"# TYPE fedavg_{name} {kind}"]
