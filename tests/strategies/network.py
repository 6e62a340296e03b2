"""A compressed strategy and its clients in one process: both real ends, made-up training."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

import strategies
from fedavg_app.internals import identify_server
from tests.strategies.replies import cohort

SHAPES = {"weight": (9, 13), "bias": (13,), "scale": ()}
SIZE = 9 * 13 + 13 + 1


def flat(arrays):
    return np.concatenate([array.numpy().reshape(-1) for array in arrays.values()])


def shaped(vector):
    parts = np.split(np.asarray(vector, np.float32), [117, 130])
    return {name: part.reshape(shape) for (name, shape), part in zip(SHAPES.items(), parts)}  # noqa: B905


def record(vector):
    return ArrayRecord({name: Array(np.asarray(part)) for name, part in shaped(vector).items()})


class Network:
    """Clients 0 .. K - 1 on nodes 10, 11, ..."""

    def __init__(self, name, clients=4, seed=0, **arguments):
        identify_server(1)
        self.rng = np.random.default_rng(seed)
        self.strategy = strategies.build(name, arguments)
        self.mod = strategies.client_mod(name)
        self.model = record(self.rng.normal(size=SIZE))
        self.contexts = [self.context(client) for client in range(clients)]
        self.trained_from = {}
        self.round = 0

    def context(self, client):
        return Context(1, 10 + client, {}, RecordDict(), {})

    def forget(self, client):
        self.contexts[client] = self.context(client)

    def send(self, *clients):
        """Return the round's messages to these clients."""
        self.round += 1
        grid = cohort(*(10 + client for client in clients))
        return self.strategy.configure_train(self.round, self.model, ConfigRecord(), grid)

    def answer(self, message, change, num_examples=1):
        """Return the client's reply; its training adds ``change``, a vector."""
        client = message.metadata.dst_node_id - 10

        def train(message, _):
            before = flat(message.content["arrays"])
            self.trained_from[client] = before
            after = record(before + change)
            metrics = MetricRecord({"num-examples": num_examples, "train-loss": 1.0})
            content = RecordDict({"arrays": after, "metrics": metrics})
            return Message(content, reply_to=message)

        return self.mod(message, self.contexts[client], train)

    def receive(self, replies):
        arrays, _ = self.strategy.aggregate_train(self.round, replies)
        self.model = self.model if arrays is None else arrays

    def step(self, changes, num_examples=None):
        """Run one round with a change per client (a dict); return the replies."""
        counts = num_examples or dict.fromkeys(changes, 1)
        messages = self.send(*changes)
        replies = [
            self.answer(message, changes[client], counts[client])
            for message, client in zip(messages, changes, strict=True)
        ]
        self.receive(replies)
        return replies

    def draw(self):
        return self.rng.normal(size=SIZE).astype(np.float32)

    def residual(self, client):
        stored = self.contexts[client].state["feedback"]["residual"]
        return np.frombuffer(stored.data, np.float32)
