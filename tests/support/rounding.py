"""Models of two computations that are the same but for rounding."""

import numpy as np


def assert_same_change(ours, theirs, start):
    """Assert that the arrays have moved alike from where they started.

    Rounding in float32 is far below a thousandth of the model's largest change, on any processor,
    and another method is far above it.
    """
    ours, theirs, start = list(ours), list(theirs), list(start)
    changes = [
        np.abs(found - before).max()
        for found, before in zip(theirs, start, strict=True)
        if np.issubdtype(before.dtype, np.floating)
    ]
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * max(changes))
