"""The sizes of unequal parts, by the STC paper's formula."""

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from fedavg_app.partitioning.classes import Classes


def exact_sizes(n, clients, gamma, alpha):
    """Return phi_i n in ascending order, exactly, not yet rounded down."""
    gamma, alpha = Fraction(gamma), Fraction(alpha)
    powers = [gamma**i for i in range(clients)]
    return [n * (alpha / clients + (1 - alpha) * p / sum(powers)) for p in reversed(powers)]


@given(
    n=st.integers(1, 5000),
    clients=st.integers(1, 60),
    gamma=st.floats(0.05, 1),
    alpha=st.floats(0, 1),
)
@settings(deadline=None)
def test_sizes_are_the_formulas_rounded_down(n, clients, gamma, alpha):
    sizes = Classes(balancedness=gamma, minimum_share=alpha).sizes(n, clients)
    for size, exact in zip(sizes, exact_sizes(n, clients, gamma, alpha), strict=True):
        # A product that is below a whole number only by rounding counts as that number.
        assert size in {math.floor(exact), math.floor(exact + Fraction(2, 10**9))}
    assert sizes == sorted(sizes)
    assert sum(sizes) <= n
