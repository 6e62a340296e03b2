"""The best quantiser of a normal variable (Lloyd-Max).

J. Max: Quantizing for Minimum Distortion. IRE Transactions on Information Theory 6(1), 1960, table
I: the levels whose mean squared error is the least, each for the numbers that it is nearest to.
"""

import math

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

# The positive levels for the standard deviation 10^4; the others are these, negative.
DEVIATION = 10**4
POSITIVE = {
    1: (7979,),
    2: (4528, 15100),
    3: (2451, 7560, 13440, 21520),
    4: (1284, 3881, 6568, 9424, 12560, 16180, 20690, 27330),
}
# By their bits an entry: all levels, rising; and the mean squared error, for the deviation 1.
LEVELS = {
    bits: np.array([-level for level in reversed(levels)] + list(levels), np.float64)
    for bits, levels in POSITIVE.items()
}
DISTORTIONS = {1: 1 - 2 / math.pi, 2: 0.1175, 3: 0.03454, 4: 0.009497}


def nearest(rows: Matrix, deviation: Matrix, bits: int) -> NDArray[np.uint8]:
    """Return the number of the nearest level, from the lowest, for each entry.

    Args:
        rows: float64 (m, n).
        deviation: The standard deviation of each row, (m, 1).
        bits: From 1 to 4, for 2^bits levels.
    """
    numbers, levels = np.zeros(rows.shape, np.uint8), LEVELS[bits] / DEVIATION
    for border in (levels[1:] + levels[:-1]) / 2:
        numbers += (rows >= border * deviation).view(np.uint8)
    return numbers
