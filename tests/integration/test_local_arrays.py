"""Arrays that stay on the clients, with the real loop, strategies and ClientApp."""

from itertools import pairwise

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedavg_app.client.local_arrays import LOCAL, keep_local_arrays
from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import resolve
from strategies.flower_arrays import from_record, to_record
from tasks.training.local_training import TaskClient
from tests.support.in_process import make_config, train

PATH = "tests.support.models:NORMALISED"
LAYER = ("1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked")


def run(strategy, **changes):
    """Return the grid, the result, and what every call of `fit` was given, by client."""
    given: dict[int, list] = {}
    fit = TaskClient.fit

    def recording(self, parameters, config, *others):
        given.setdefault(self.partition, []).append([array.copy() for array in parameters])
        return fit(self, parameters, config, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskClient, "fit", recording)
        grid, result = train(task=PATH, strategy=strategy, local_arrays="1.*", **changes)
    return grid, result, given


@pytest.mark.parametrize("strategy", ["fedavg", "stc", "flwr.serverapp.strategy:FedAdam"])
def test_each_client_trains_with_arrays_of_its_own(strategy):
    grid, result, given = run(strategy, num_server_rounds=4, fraction_train=0.4)
    assert not any(metrics.rejected for metrics in result.history)
    names = list(result.model)
    states = {
        grid.partition(node): context.state[LOCAL]
        for node, context in grid.contexts.items()
        if LOCAL in context.state
    }
    assert set(states) == set(given)
    means = [state["1.running_mean"].numpy() for state in states.values()]
    assert len({mean.tobytes() for mean in means}) == len(means) > 5
    for client, calls in given.items():
        assert tuple(states[client]) == LAYER
        places = {name: names.index(name) for name in LAYER}
        for before, after in pairwise(calls):
            counter = places["1.num_batches_tracked"]
            assert after[counter] > before[counter], "it goes on from its own, not from a mean"
            assert not np.array_equal(after[places["1.weight"]], before[places["1.weight"]])


def test_clients_evaluate_with_arrays_of_their_own(monkeypatch):
    evaluated = {}
    evaluate = TaskClient.evaluate

    def recording(self, parameters, config):
        evaluated[self.partition] = [array.copy() for array in parameters]
        return evaluate(self, parameters, config)

    monkeypatch.setattr(TaskClient, "evaluate", recording)
    grid, result, _ = run("fedavg", num_server_rounds=2, fraction_train=1.0, fraction_evaluate=1.0)
    contexts = {grid.partition(node): context for node, context in grid.contexts.items()}
    assert len(evaluated) == 20
    for client, arrays in evaluated.items():
        for name, array in zip(result.model, arrays, strict=True):
            own = contexts[client].state[LOCAL] if name in LAYER else result.model
            np.testing.assert_array_equal(array, own[name].numpy())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"local_arrays": "bn*"},
            "local-arrays = 'bn\\*': 'bn\\*' matches no array that clients send; there are: 1",
        ),
        ({"local_arrays": "1.bias, haed.*"}, "'haed.\\*' matches no array that clients send"),
        ({"local_arrays": " , "}, "there are: 1.weight"),
        ({"local_arrays": "*"}, "nothing would be federated"),
        ({"local_arrays": "1.bias", "strategy": "fedsgd"}, "fedsgd's clients send gradients"),
    ],
)
def test_patterns_that_cannot_be_used_are_refused(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        resolve(make_config(**changes))


@pytest.mark.usefixtures("server_identity")
def test_infinities_that_were_sent_do_not_keep_local_arrays_from_being_kept():
    """A mask among them has some from the start."""
    context = Context(1, 1, {}, RecordDict(), {"local-arrays": "head.*"})
    sent = {"head.mask": np.array([0, -np.inf]), "head.weight": np.zeros(2)}

    def train_with(weight):
        def fit(message, _):
            arrays = {**from_record(message.content["arrays"]), "head.weight": np.full(2, weight)}
            return Message(RecordDict({"arrays": to_record(arrays)}), reply_to=message)

        content = RecordDict({"arrays": to_record(sent)})
        message = Message(content, dst_node_id=1, message_type="train")
        keep_local_arrays(message, context, fit)
        return context.state[LOCAL]["head.weight"].numpy().tolist()

    assert train_with(1.0) == [1, 1]
    assert train_with(np.nan) == [1, 1]
