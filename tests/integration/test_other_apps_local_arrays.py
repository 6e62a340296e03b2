"""Arrays that stay on the clients of another app, named by ``local_arrays`` or not."""

import logging

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from sklearn.datasets import load_digits
from torch.nn import functional

from strategies import compression_mod
from strategies.compressed import TopK
from strategies.fedavg import FedAvg
from strategies.fedsgd import FedSGD
from strategies.scaffold import SCAFFOLD
from strategies.stc import STC
from tests.integration.test_any_app import AppGrid

P = {"sparsity_up": 0.05, "sparsity_down": 0.05}
CLIENTS, EXAMPLES = 4, 350


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(64, 32), torch.nn.Linear(32, 10)

    def forward(self, inputs):
        return self.head(torch.relu(self.body(inputs)))


def digits():
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(pixels / 16, dtype=torch.float32)[order], torch.tensor(labels)[order]


X, Y = digits()


def accuracy(net):
    first = CLIENTS * EXAMPLES
    with torch.no_grad():
        return float((net(X[first:]).argmax(1) == Y[first:]).float().mean())


def personal_app(*mods, own_head, seen=None):
    """Return the app of a user whose clients train an epoch each, at a rate of 0.1.

    Args:
        mods: Of the ClientApp.
        own_head: Whether each puts its own head over the received one, as Flower's
            advanced-pytorch does.
        seen: A list to which the names of the arrays that handlers get are appended.
    """
    app = ClientApp(mods=list(mods))

    def received(message, context):
        net = Net()
        if seen is not None:
            seen.append(list(message.content["arrays"]))
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        if own_head and "head" in context.state:
            net.head.load_state_dict(context.state["head"].to_torch_state_dict())
        return net

    @app.train()
    def train(message, context):
        net = received(message, context)
        first = EXAMPLES * (context.node_id - 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for start in range(first, first + EXAMPLES, 35):
            batch = slice(start, start + 35)
            loss = functional.cross_entropy(net(X[batch]), Y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if own_head:
            context.state["head"] = ArrayRecord(net.head.state_dict())
        metrics = MetricRecord({"num-examples": EXAMPLES})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        net = received(message, context)
        metrics = MetricRecord({"num-examples": 1, "own": accuracy(net)})
        extra = ArrayRecord(net.state_dict())  # as clients of Hugging Face's example return it
        return Message(RecordDict({"arrays": extra, "metrics": metrics}), reply_to=message)

    return app


def run(strategy, app, rounds, config=None):
    """Return the result, the grid, and the accuracies of the global model by round."""
    torch.manual_seed(0)
    found = {}

    def test(server_round, arrays):
        net = Net()
        net.load_state_dict(arrays.to_torch_state_dict())
        found[server_round] = accuracy(net)

    grid = AppGrid(app)
    result = strategy.start(
        grid=grid, initial_arrays=ArrayRecord(Net().state_dict()), num_rounds=rounds,
        train_config=config, evaluate_fn=test,
    )  # fmt: skip
    return result, grid, found


@pytest.mark.parametrize("own_head", [pytest.param(True, marks=pytest.mark.slow), False])
def test_stc_with_local_arrays_is_as_accurate_as_fedavg_whose_clients_keep_their_heads(own_head):
    """With the argument, handlers may keep their heads themselves or leave it to the mod."""
    seen = []
    strategy = STC(**P, local_arrays=("head.*",))
    app = personal_app(compression_mod, own_head=own_head, seen=seen)
    result, grid, _ = run(strategy, app, 40)
    assert grid.errors == []
    _, _, plain = run(flower.FedAvg(fraction_evaluate=0.0), personal_app(own_head=True), 40)
    assert result.evaluate_metrics_clientapp[40]["own"] > plain[40] - 0.04
    assert all(names == list(Net().state_dict()) for names in seen)
    torch.manual_seed(0)
    initial = Net().state_dict()
    assert list(result.arrays) == list(initial)
    for name, array in result.arrays.items():
        assert np.array_equal(array.numpy(), initial[name].numpy()) == name.startswith("head.")


@pytest.mark.parametrize(
    "strategy",
    [FedAvg, TopK, lambda **keys: STC(**P, **keys), SCAFFOLD],
    ids=["fedavg", "topk", "stc", "scaffold"],
)
def test_local_arrays_travel_once(strategy):
    """Down with a client's first messages, until the server has used a reply of it."""
    made = strategy(local_arrays=("head.*",), fraction_evaluate=0.0)
    mod = compression_mod if not isinstance(made, SCAFFOLD) else made.client_mod
    config = ConfigRecord({"learning-rate": 0.1, "batch-size": 35})
    _, grid, _ = run(made, personal_app(mod, own_head=False), 3, config)
    assert grid.errors == []
    assert ["head.weight" in names for *_, names in grid.sent] == (
        [True] * CLIENTS + [False] * 2 * CLIENTS
    )
    assert not any("head.weight" in names for *_, names in grid.received)


def test_client_that_lost_its_arrays_gets_the_initial_ones_again():
    grid = AppGrid(personal_app(compression_mod, own_head=False))

    def restart(server_round, arrays):
        if server_round == 2:
            grid.contexts[1].state = RecordDict()

    strategy = STC(**P, local_arrays=("head.*",), fraction_evaluate=0.0)
    arrays = ArrayRecord(Net().state_dict())
    for _ in range(2):  # in a second training all begin with the initial arrays
        strategy.start(grid=grid, initial_arrays=arrays, num_rounds=5, evaluate_fn=restart)
        assert grid.errors == []
        assert all("fedavg-strategies.local-values" in c.state for c in grid.contexts.values())


@pytest.mark.parametrize(
    ("patterns", "strategy", "reason"),
    [
        (("haed.*",), STC, r"'haed\.\*' matches no array; there are: body\.weight"),
        (("*",), STC, "nothing would be sent"),
        (("head.*",), FedSGD, "the clients of FedSGD send gradients and train nothing"),
    ],
)
def test_names_that_cannot_stay_are_refused(patterns, strategy, reason):
    with pytest.raises(ValueError, match=reason):
        run(strategy(local_arrays=patterns), personal_app(own_head=False), 1)


def test_head_that_clients_keep_unnamed_is_warned_of_and_ends_the_run(caplog):
    """The model is not destroyed: the run ends with an error that says what to do."""
    strategy = STC(**P, fraction_evaluate=0.0)
    advice = r"clients seem to keep their own array 'head\.\w+': give local_arrays=\('head\.\*',\)"
    sizes = []

    def norm(server_round, arrays):
        head = arrays["head.weight"].numpy()
        sizes.append(float(np.linalg.norm(head)))

    app, start = personal_app(compression_mod, own_head=True), ArrayRecord(Net().state_dict())
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(RuntimeError, match=f"no usable reply in 3 rounds in a row: .*{advice}"),
    ):
        strategy.start(grid=AppGrid(app), initial_arrays=start, num_rounds=90, evaluate_fn=norm)
    warnings = [line for line in caplog.messages if "clients seem to keep" in line]
    assert sum("rejected" not in line for line in warnings) == 1
    assert max(sizes) < 10 * sizes[0], "812 without the bound"
