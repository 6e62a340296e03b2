"""What a run with secure sums refuses before it asks a client."""

import pytest

from fedavg_app.errors import ConfigError
from fedavg_app.server.preparation import resolve
from tests.support.in_process import make_config, train


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fraction_evaluate": 0.5}, r"fraction-evaluate = 0\.5: give 0: secure-sum hides"),
        ({"initial_loss": True}, r"initial-loss = True: leave it out: secure-sum hides"),
        ({"fraction_train": 0.01}, r"fraction-train = 0\.01: give one by which two clients"),
        ({"max_update_norm": 3.0}, "hides single clients' updates: leave out max-update-norm"),
        ({"selection": "power-of-choice"}, "leave out selection"),
        ({"task": "tests.support.models:EVERYTHING"}, "would send the buffers .* unmasked"),
        ({"strategy_args": "max-staleness = 3"}, "does not take max-staleness"),
        ({"strategy_args": "weights = 'samples'"}, "does not take weights"),
    ],
)
def test_what_would_show_single_clients_is_refused(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        resolve(make_config(strategy="secure-sum", **changes))


def test_arrays_that_stay_on_the_clients_are_in_no_sum():
    _, result = train(
        strategy="secure-sum", task="mnist-2nn", local_arrays="5.*", num_clients=6,
        fraction_train=1.0,
    )  # fmt: skip
    assert not any(metrics.rejected for metrics in result.history)
    assert list(result.model) == ["1.weight", "1.bias", "3.weight", "3.bias"]


def test_history_counts_every_exchange():
    """A round waits for the largest message of each: keys, shares, the model, survivors."""
    _, result = train(strategy="secure-sum", num_clients=6, fraction_train=1.0)
    rounds = [metrics for metrics in result.history if metrics.participants]
    assert [metrics.exchanges for metrics in rounds] == [4] * len(rounds)
    for metrics in rounds:
        assert metrics.largest_down == metrics.bytes_down / 6, "all get as much"
        assert metrics.largest_up == metrics.bytes_up / 6
