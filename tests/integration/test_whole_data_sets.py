"""The complete data sets, where they are at hand: the parsers on all that they have to read."""

import pytest

from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tasks.data.shakespeare import SHAKESPEARE
from tasks.data.sources import PARSERS
from tests.support.data_slices import WHOLE, needs_whole_data

pytestmark = needs_whole_data


def load(source):
    return source.load(DataOptions(directory=str(WHOLE / source.name)))


@pytest.mark.parametrize(
    ("source", "fingerprint"),
    [
        (MNIST, "7ecee0b9ae402d9ebb7b4d5b79c27c0153e18d2eb9b80732c4793288c90a6717"),
        pytest.param(
            CIFAR10,
            "29b739c2cbb1d16ac0da5a3c2ca5fa3212075518d3b8ab0662caef0ea5808abe",
            marks=pytest.mark.slow,
        ),
        (SHAKESPEARE, "267b2a0fba54b2fbb02141dd285253ee6148e166db596e2e39be7770a1d6ab64"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_fingerprints_are_those_of_the_records(source, fingerprint):
    """The records in results/ name their data by these; a change needs a new `PARSERS`."""
    assert PARSERS == "v1"
    assert load(source).fingerprint == fingerprint
