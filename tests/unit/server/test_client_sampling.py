import numpy as np
import pytest

from fedavg_app.server.client_sampling import cohort_size, sample_clients


@pytest.mark.parametrize(
    ("fraction", "clients", "expected"),
    [(0.0, 100, 1), (0.1, 100, 10), (0.2, 100, 20), (1.0, 100, 100), (0.001, 100, 1),
     (0.125, 100, 13), (0.1, 1146, 115), (0.5, 1, 1),
     (0.29, 50, 15), (0.145, 100, 15)],
)  # fmt: skip
def test_cohort_size_is_the_papers_m(fraction, clients, expected):
    assert cohort_size(fraction, clients) == expected


def test_cohort_depends_on_seed_round_and_purpose_only():
    base = sample_clients(1, 5, "train", 10, range(100))
    assert base == sample_clients(1, 5, "train", 10, range(100))
    assert base == sorted(set(base))
    assert len(base) == 10
    others = [
        sample_clients(2, 5, "train", 10, range(100)),
        sample_clients(1, 6, "train", 10, range(100)),
        sample_clients(1, 5, "evaluate", 10, range(100)),
    ]
    assert all(base != other for other in others)


def test_participation_is_uniform_over_rounds():
    counts = np.zeros(20)
    rounds = 2000
    for server_round in range(rounds):
        counts[sample_clients(3, server_round, "train", 5, range(20))] += 1
    # 2,000 draws at 1/4: mean 500, standard deviation 19.4; five of them on both sides.
    assert np.all(np.abs(counts - rounds / 4) < 5 * np.sqrt(rounds * 0.25 * 0.75))


def test_only_connected_clients_are_sampled():
    connected = [0, 3, 4, 8]
    drawn = {client for n in range(50) for client in sample_clients(1, n, "train", 2, connected)}
    assert drawn == set(connected)
    assert sample_clients(1, 1, "train", 9, connected) == connected
