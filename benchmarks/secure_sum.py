"""`python -m benchmarks.secure_sum`: the seconds of a secure sum's stages, on one core.

For 10 and 100 clients (or the numbers given) and 10^6 weights, without training: what a client
computes in each stage, and what the server computes after it.
"""

import sys
import time
from collections import Counter

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

import strategies
from fedavg_app.flower_internals import identify_server
from fedavg_app.server.client_sampling import CohortGrid
from strategies.rounds.exchange import advance
from strategies.rounds.messages import OWN, SECURE
from strategies.secure.messages import Request

WEIGHTS = 10**6


def handler(message: Message, _: Context) -> Message:
    """Return the model plus normal numbers in place of a training."""
    noise = np.random.default_rng(message.metadata.dst_node_id).normal(size=WEIGHTS)
    arrays = ArrayRecord([noise.astype(np.float32)])
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, reply_to=message)


def seconds(num_clients: int) -> None:
    """Print what a round of so many clients takes, once the scale is known."""
    runner, mod = strategies.build("secure-sum", {}), strategies.client_mod("secure-sum", {})
    assert mod is not None
    contexts = {n: Context(1, n, {}, RecordDict(), {}) for n in range(1, num_clients + 1)}
    arrays = ArrayRecord([np.zeros(WEIGHTS, np.float32)])
    for number in (1, 2):
        client, server = Counter[str](), Counter[str]()
        exchanges = runner.round(number, arrays, ConfigRecord(), CohortGrid(None, list(contexts)))
        exchange, _ = advance(exchanges)
        while exchange is not None:
            request = Request.decode(exchange.messages[0].content[OWN][SECURE])
            for message in exchange.messages:
                started = time.perf_counter()
                reply = mod(message, contexts[message.metadata.dst_node_id], handler)
                client[request.stage.name] += (time.perf_counter() - started) / num_clients
                started = time.perf_counter()
                exchange.take(reply)
                server[request.stage.name] += time.perf_counter() - started
            started = time.perf_counter()
            exchange, _ = advance(exchanges)
            server[request.stage.name] += time.perf_counter() - started
    for stage in client:
        print(
            f"{num_clients:4d} {stage:9s} client {client[stage]:7.3f} server {server[stage]:7.3f}"
        )
    print(f"{num_clients:4d} together  client {client.total():7.3f} server {server.total():7.3f}")


if __name__ == "__main__":
    identify_server(1)
    for given in sys.argv[1:] or ["10", "100"]:
        seconds(int(given))
