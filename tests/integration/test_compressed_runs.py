import pytest
from flwr.app import RecordDict

from tests.support.in_process import train
from tests.support.local_grid import LocalGrid

SIZE = 7850
NAMES = ["stc", "topk", "signsgd", "qsgd", "eden", "dgc"]
# The quick tests train with these, the slow tests with all.
QUICK = ["stc", "signsgd"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_compressed_run_learns_and_counts_what_it_sends(name):
    step = "step-size = 0.002" if name == "signsgd" else ""
    _, result = train(
        strategy=name, strategy_args=step, partition="iid",
        num_server_rounds=60, local_steps=1, evaluate_every=60,
    )  # fmt: skip
    assert result.history[-1].accuracy > 0.6  # 0.1 is chance
    sums = dict.fromkeys(result.history[0].total, 0)
    for metrics in result.history:
        for key in sums:
            sums[key] += getattr(metrics, key)
        assert metrics.total == pytest.approx(sums)
    dense_bits = 32 * SIZE * 5 * 60
    assert result.history[-1].total["theory_bits_up"] < dense_bits / 9
    assert 8 * result.history[-1].total["bytes_up"] < dense_bits / 9


class StateLosingGrid(LocalGrid):
    """All clients lose their state before round 60."""

    def push_messages(self, messages):
        messages = list(messages)
        if any(m.content["config"].get("server-round") == 60 for m in messages if m.content):
            for context in self.contexts.values():
                context.state = RecordDict()
        return super().push_messages(messages)


def test_run_survives_that_all_clients_lose_their_state():
    """With one client a round, more rounds in a row ask for the model than would end a run."""
    _, result = train(
        grid_type=StateLosingGrid, strategy="stc", num_clients=10, partition="iid",
        fraction_train=0.0, num_server_rounds=80, local_steps=1, evaluate_every=80,
    )  # fmt: skip
    resyncing = [metrics.round for metrics in result.history if metrics.rejected]
    assert resyncing[:4] == [60, 61, 62, 63]
    assert len(result.history) == 81
