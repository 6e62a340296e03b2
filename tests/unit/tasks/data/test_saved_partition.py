"""Folders as `flwr-datasets create` writes them: a `datasets.Dataset`, saved to disk."""

import datasets
import numpy as np
import pytest
from PIL import Image

from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataError, DataOptions
from tasks.data.mnist import MNIST

COUNT = 12


def save(folder, pixels, labels, column="image"):
    """Save what a partition of a data set with images has: PNG files, encoded, and labels."""
    images = [Image.fromarray(array) for array in pixels]
    features = datasets.Features(
        {column: datasets.Image(), "label": datasets.ClassLabel(num_classes=10)}
    )
    rows = datasets.Dataset.from_dict({column: images, "label": labels}, features=features)
    rows.save_to_disk(folder)
    return folder


def pixels(*shape):
    return np.random.default_rng(1).integers(0, 256, (COUNT, *shape), dtype=np.uint8)


def own(folder):
    return DataOptions(directory=str(folder), own=True)


def test_partition_of_mnist_is_the_training_set(tmp_path):
    images, labels = pixels(28, 28), np.arange(COUNT) % 10
    found = MNIST.load(own(save(tmp_path / "partition_0", images, labels)))
    np.testing.assert_array_equal(found.train.inputs, images)
    np.testing.assert_array_equal(found.train.targets, labels)
    assert (found.train.inputs.dtype, found.train.targets.dtype) == (np.uint8, np.int64)
    assert len(found.test) == 0


def test_partition_of_cifar_has_its_channels_first(tmp_path):
    images, labels = pixels(32, 32, 3), np.arange(COUNT) % 10
    found = CIFAR10.load(own(save(tmp_path / "partition_0", images, labels, "img")))
    np.testing.assert_array_equal(found.train.inputs, images.transpose(0, 3, 1, 2))


def test_partition_of_another_data_set_is_one_line(tmp_path):
    labels = np.arange(COUNT) % 10
    larger = save(tmp_path / "larger", pixels(32, 32), labels)
    with pytest.raises(DataError, match=r"larger: inputs are uint8 \(12, 32, 32\), not uint8 \(n"):
        MNIST.load(own(larger))
    other = save(tmp_path / "other", pixels(28, 28), labels, "picture")
    with pytest.raises(
        DataError, match=r"other has no rows of this data set \(.*; create"
    ) as error:
        MNIST.load(own(other))
    assert "\n" not in str(error.value)
