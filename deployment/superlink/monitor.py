"""What an operator asks a SuperLink for on its own machine: health, and metrics for Prometheus."""

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
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


class Monitor:
    """Counts what devices send, and answers ``/metrics`` and ``/health``."""

    def __init__(self) -> None:
        self.last_seen: dict[int, float] = {}  # by node, in monotonic seconds
        self.last_reply: dict[int, float] = {}
        self.replies: Counter[int] = Counter()
        self.refusals: Counter[tuple[int, str]] = Counter()
        self.strangers: Counter[str] = Counter()  # by node or address
        self.bytes = Counter({"in": 0, "out": 0})
        self.run_id = self.server_round = 0
        self.last_failure = -math.inf

    def answered(self, source: str, name: str, length: int, answer: Response) -> None:
        """Count a request by its answer's status.

        Args:
            source: The node whose key signed it, or the address of a stranger.
            name: The request's.
            length: Its bytes.
            answer: The answer.
        """
        if answer.status_code == 200:
            self.bytes.update({"in": length, "out": len(answer.body)})
        elif answer.status_code == 401:
            self._unauthorised(source, name)
        elif answer.status_code >= 500:
            self.failed_to_answer(f"it answers with status {answer.status_code}")

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

    def _unauthorised(self, source: str, name: str) -> None:
        """Count a request whose signature is not that of the node it names, and log the first."""
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
        """Return all metrics in Prometheus' format: a value for each set of labels."""
        now, lines = time.monotonic(), []
        online = sum(now - last < ONLINE_SECONDS for last in self.last_seen.values())
        since = {node: round(now - last, 1) for node, last in self.last_reply.items()}
        refusals = {f'{{node="{node}",request="{name}"}}': count
                    for (node, name), count in self.refusals.items()}  # fmt: skip
        for name, text, values in (
            ("nodes_online", "Devices that asked in the last minute.", {"": online}),
            ("run", "The round of the run that sent the last message.",
             {f'{{run_id="{self.run_id}"}}': self.server_round}),
            ("replies_total", "Replies that were announced.", _labelled(self.replies)),
            ("last_reply_seconds", "Seconds since the last reply.", _labelled(since)),
            ("refused_total", "Requests that were refused.", refusals),
            ("unauthorised_total", "Requests without a valid signature.",
             _labelled(self.strangers, "source")),
            ("connections_open", "Connections that are open.",
             {"": BoundedHTTPProtocol.connected.total()}),
            ("connections_refused_total", "Connections beyond the bound.",
             _labelled(BoundedHTTPProtocol.refused, "address")),
            ("bytes_total", "Bytes of requests and of answers.",
             _labelled(self.bytes, "direction")),
        ):  # fmt: skip
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP fedavg_{name} {text}", f"# TYPE fedavg_{name} {kind}"]
            lines += [f"fedavg_{name}{labels} {value}" for labels, value in values.items()]
        return "\n".join(lines) + "\n"


def _labelled(values: Mapping[Any, Any], label: str = "node") -> dict[str, Any]:
    return {f'{{{label}="{key}"}}': value for key, value in values.items()}
