"""The complete data sets, where they are at hand: the parsers on all that they have to read."""

import numpy as np
import pytest

from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tasks.data.shakespeare import SHAKESPEARE
from tasks.data.yelp import YELP
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
    """The records in results/ name their data by these; a change needs a new `parser_version`."""
    assert source.parser_version == 1
    assert load(source).fingerprint == fingerprint


@pytest.mark.slow
def test_cifar10_is_balanced_and_has_the_known_channel_means():
    data = load(CIFAR10)
    assert np.bincount(data.train.targets).tolist() == [5000] * 10
    assert np.bincount(data.test.targets).tolist() == [1000] * 10
    pixels = data.train.inputs / np.float32(255)
    assert pixels.mean(axis=(0, 2, 3)) == pytest.approx([0.49140, 0.48216, 0.44653], abs=1e-4)


def test_complete_works_of_shakespeare_have_the_roles_of_the_paper():
    data = load(SHAKESPEARE)
    assert len(np.unique(data.train.owners)) == len(np.unique(data.test.owners)) == 1146
    # The paper has 3,564,579 and 870,014.
    assert (data.train.targets >= 0).sum() == 3_569_256
    assert (data.test.targets >= 0).sum() == 870_941
    assert len(data.train) == 85_252  # 74.4 a role, as the paper's numbers of updates imply


@pytest.mark.slow
def test_yelp_reviews_have_the_known_numbers_of_stars():
    data = load(YELP)
    both = np.bincount(data.train.targets) + np.bincount(data.test.targets)
    assert both.tolist() == [749, 927, 1461, 3526, 3337]
    assert (len(data.train), len(data.test)) == (8000, 2000)
    assert data.train.inputs.max() == 9999
