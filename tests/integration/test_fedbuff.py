"""FedBuff on the virtual clock, against a separate event queue."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedavg_app.config import kebab, parse_config
from fedavg_app.partitioning import partition
from fedavg_app.server.client_sampling import sample_clients
from fedavg_app.server.preparation import resolve
from fedavg_app.virtual_clock import make_clock
from strategies.rounds.flower_arrays import message_bytes
from tests.support.in_process import run_here, told_by
from tests.support.local_grid import LocalGrid

# Nine clients at a time share the server's rates, and have less of them than of their own.
SERVER = "server-up = 9\nserver-down = 18\n\n"
SPREAD = f"{SERVER}[[class]]\nup = 2\ndown = 5\nlatency = 50\ncomputing = 4\nspread = 1.5\n"
BUFFER, TRAINING, ROUNDS = 3, 9, 8
CONFIG = {
    "task": "mnist-logistic", "data-source": "embedded", "num-clients": 30, "fraction-train": 0.1,
    "num-server-rounds": ROUNDS, "target": "none", "local-steps": 3, "batch-size": 20,
    "partition": "shards", "seed": 4,
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    links = tmp_path / "links.toml"
    links.write_text(SPREAD)
    keys = {"strategy": "fedbuff", "over-selection": 2.0, "links": str(links)}
    return parse_config({**CONFIG, **keys, "run-dir": str(tmp_path / "runs")})


def changed(config, keys):
    return parse_config(config.model_dump(by_alias=True) | {kebab(k): v for k, v in keys.items()})


def event_queue(config):
    """Return the model, the virtual time and how late each reply was, by rounds.

    The clients are the app's; drawing, waiting, weights and the mean are done here.
    """
    grid = LocalGrid(config.model_dump(by_alias=True), config.num_clients)
    parts = resolve(config)
    task, initial = parts.task, parts.model
    data = task.dataset(config.data_options)
    sizes = [len(rows) for rows in partition(data, "train", config)]
    clock = make_clock(config, sizes, task.seconds_per_example, whole_data=False)
    told = told_by(config, task, data, initial.fingerprint)
    names = list(initial.sent)
    model = {name: array.numpy().astype(np.float64) for name, array in initial.sent.items()}
    now, queue, lateness = 0.0, [], []
    for number in range(1, ROUNDS + 1):
        busy = {client for _, client, *_ in queue}
        free = [client for client in range(config.num_clients) if client not in busy]
        drawn = sample_clients(config.seed, number, "train", TRAINING - len(queue), free)
        sent = {name: model[name].astype(np.float32) for name in names}
        for client in drawn:
            record = ArrayRecord({name: Array(array) for name, array in sent.items()})
            rate = {"learning-rate": task.learning_rate, "server-round": number}
            content = RecordDict({"arrays": record, "config": ConfigRecord({**told, **rate})})
            node = grid.node(client)
            message = Message(content, dst_node_id=node, message_type="train", group_id=str(number))
            (key,) = grid.push_messages([message])
            (reply,) = grid.pull_messages([key])
            spent = clock.client_time(
                number, client, TRAINING, message_bytes(message), message_bytes(reply)
            )
            trained = {name: array.numpy() for name, array in reply.content["arrays"].items()}
            change = {name: trained[name].astype(float) - sent[name] for name in names}
            queue.append((now + spent.total, client, number, change))
        queue.sort(key=lambda event: event[:2])
        buffer, queue = queue[:BUFFER], queue[BUFFER:]
        now = buffer[-1][0]
        late = [number - began for _, _, began, _ in sorted(buffer, key=lambda event: event[1])]
        lateness.append(late)
        for name in names:
            total = np.zeros(model[name].shape)
            for _, _, began, change in sorted(buffer, key=lambda event: event[1]):
                total += change[name] * (1.0 + number - began) ** -0.5
            mean = total / BUFFER
            model[name] = (sent[name] + mean).astype(np.float32).astype(np.float64)
    return model, now, lateness


def test_run_equals_an_event_queue_bit_for_bit(config):
    model, seconds, lateness = event_queue(config)
    assert max(map(max, lateness)) >= 3, "some replies must be late"
    result = run_here(config)
    for name, expected in model.items():
        np.testing.assert_array_equal(result.model[name].numpy(), expected.astype(np.float32))
    spent = [line.virtual_seconds.get("round", 0.0) for line in result.history]
    assert sum(spent) == pytest.approx(seconds)
    assert [line.participants for line in result.history[1:]] == [TRAINING] + [BUFFER] * (
        ROUNDS - 1
    )
    assert not any(line.rejected for line in result.history)


def test_compressed_updates_are_buffered_too(config):
    """Uncompressed, it is FedBuff; messages have 25 bytes more, which reorders no replies."""
    ours = run_here(config)
    arguments = "uplink = 'float32', feedback = 'none', max-staleness = 50"
    keys = {"strategy": "compressed", "strategy_args": arguments}
    compressed = run_here(changed(config, keys))
    for name, array in ours.model.items():
        np.testing.assert_allclose(compressed.model[name].numpy(), array.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("strategy", "arguments"),
    [("fedbuff", ""), ("stc", "sparsity-up = 0.04, sparsity-down = 0.04, ")],
)
def test_reply_that_is_too_late_is_rejected(config, strategy, arguments):
    keys = {"strategy": strategy, "strategy_args": f"{arguments}max-staleness = 1"}
    result = run_here(changed(config, keys))
    reasons = [text for line in result.history for text in line.rejected.values()]
    assert reasons
    assert all("max-staleness is 1" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("nine", "it answers the group 'nine', which is no round"),
        ("9" * 5000, "it answers the group '999"),
        ("99", "it answers round 99, and this is round "),
    ],
)
def test_reply_to_a_nonexistent_round_is_rejected(config, group, reason):
    def lie(reply):
        reply.metadata.group_id = group
        return reply

    result = run_here(config, tamper=dict.fromkeys(range(0, 30, 2), lie))
    reasons = [text for line in result.history for text in line.rejected.values()]
    assert reasons
    assert all(reason in text for text in reasons)
