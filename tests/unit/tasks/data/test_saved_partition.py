"""Folders as `flwr-datasets create` writes them: a `datasets.Dataset`, saved to disk."""

import datasets
import numpy as np
import pytest
from PIL import Image

from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataError, DataOptions
from tasks.data.mnist import MNIST
from tasks.data.shakespeare import SHAKESPEARE

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


def test_partition_that_was_changed_is_read_again(tmp_path):
    for seed in (1, 2):
        labels = np.random.default_rng(seed).integers(0, 10, COUNT)
        folder = save(tmp_path / f"version_{seed}", pixels(28, 28), labels)
        folder = folder.rename(tmp_path / "partition_0")
        np.testing.assert_array_equal(MNIST.load(own(folder)).train.targets, labels)
        folder.rename(tmp_path / f"old_{seed}")


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


def test_corrupt_partition_is_one_line(tmp_path):
    folder = save(tmp_path / "partition_0", pixels(28, 28), np.arange(COUNT) % 10)
    (arrow,) = folder.glob("*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:100])
    with pytest.raises(DataError, match="has no rows of this data set") as error:
        MNIST.load(own(folder))
    assert "\n" not in str(error.value)


def test_partition_is_only_read_as_a_devices_own(tmp_path):
    folder = save(tmp_path / "partition_0", pixels(28, 28), np.arange(COUNT) % 10)
    with pytest.raises(DataError, match="canonical IDX files"):
        MNIST.load(DataOptions(directory=str(folder)))
    with pytest.raises(DataError):
        SHAKESPEARE.load(own(folder))
