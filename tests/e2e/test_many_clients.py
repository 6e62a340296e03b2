"""A million clients take no more memory than a thousand, and hardly more time."""

import sys

import pytest

from benchmarks.clients import measure

pytestmark = pytest.mark.long


def test_run_of_a_million_clients_starts_in_memory_of_2_gb():
    cost = measure(1_000_000, 5)
    assert cost.memory < 2e9, f"{cost.memory / 1e9:.2f} GB"
    assert cost.start < 300  # 10 on two free cores
    sys.stdout.write(f"{cost}\n")
