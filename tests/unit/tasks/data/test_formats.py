"""NumPy archives, and folders as `flwr-datasets create` writes them: a saved `datasets.Dataset`."""

import datasets
import numpy as np
import pytest
from PIL import Image

from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataError, DataOptions, Schema, Split
from tasks.data.mnist import MNIST
from tests.support.one_line import one_line

pytestmark = pytest.mark.usefixtures("cache")

IMAGES = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
LABELS = np.array([3, 1, 4, 1, 5])


def load(folder, source=MNIST):
    return source.load(DataOptions(directory=str(folder), own=True))


def test_archives_of_a_device_are_loaded_and_test_archive_is_optional(tmp_path):
    np.savez_compressed(tmp_path / "train.npz", inputs=IMAGES, targets=LABELS.astype(np.int8))
    data = load(tmp_path)
    assert np.array_equal(data.train.inputs, IMAGES)
    assert np.array_equal(data.train.targets, LABELS)
    assert data.train.targets.dtype == np.int64
    assert len(data.test) == 0
    np.savez(tmp_path / "test.npz", inputs=IMAGES[:2], targets=LABELS[:2])
    assert np.array_equal(load(tmp_path).test.inputs, IMAGES[:2])


@pytest.mark.parametrize(
    ("inputs", "targets", "reason"),
    [
        (IMAGES.astype(float), LABELS, "are float64 (5, 28, 28), not uint8 (n, 28, 28)"),
        (IMAGES, LABELS[:4], "targets are (4,) for 5 inputs"),
        (IMAGES, LABELS + 0.5, "targets are float64, not integers"),
        (IMAGES, LABELS + 6, "targets must be 0 to 9"),
        (np.array([None] * 5), LABELS, "Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_do_not_fit_schema_are_rejected(tmp_path, inputs, targets, reason):
    np.savez(tmp_path / "train.npz", inputs=inputs, targets=targets)
    with one_line(DataError, "train.npz", reason):
        load(tmp_path)


@pytest.mark.parametrize(
    ("inputs", "targets", "reason"),
    [
        ([[0, 1], [2, 9]], [[1, 1], [1, 1]], "inputs must be 0 to 8"),
        ([[0, 1], [2, -1]], [[1, 1], [1, 1]], "inputs must be 0 to 8"),
        ([[0, 1], [2, 3]], [[1, 1], [-1, -100]], "an example has no prediction"),
    ],
)
def test_sequences_that_a_model_cannot_take_are_rejected(inputs, targets, reason):
    schema = Schema(np.int16, (2,), classes=9, predictions=(2,), symbols=9)
    with pytest.raises(ValueError, match=reason):
        schema.check(Split(np.array(inputs, np.int16), np.array(targets)))


def test_negative_targets_are_ignored_by_the_loss():
    schema = Schema(np.int16, (2,), classes=9, predictions=(2,))
    train = schema.check(Split(np.zeros((2, 2), np.int16), np.array([[1, -1], [-7, 2]])))
    assert train.targets.tolist() == [[1, -100], [-100, 2]]


def test_only_the_last_version_of_a_devices_data_is_kept(tmp_path, cache):
    for count in (4, 5):
        np.savez(tmp_path / "train.npz", inputs=IMAGES[:count], targets=LABELS[:count])
        assert len(load(tmp_path).train) == count
    assert len(list(cache.rglob("*.safetensors"))) == 1


COUNT = 12


def save(folder, pixels, column="image"):
    """Save what a partition of a data set with images has: PNG files, encoded, and labels."""
    labels = datasets.ClassLabel(num_classes=10)
    features = datasets.Features({column: datasets.Image(), "label": labels})
    columns = {column: [Image.fromarray(image) for image in pixels], "label": np.arange(COUNT) % 10}
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder)
    return folder


def pixels(*shape):
    return np.random.default_rng(1).integers(0, 256, (COUNT, *shape), dtype=np.uint8)


def test_saved_rows_of_the_hub_are_the_training_set(tmp_path):
    images = pixels(28, 28)
    found = load(save(tmp_path / "partition_0", images))
    np.testing.assert_array_equal(found.train.inputs, images)
    np.testing.assert_array_equal(found.train.targets, np.arange(COUNT) % 10)
    assert (found.train.inputs.dtype, found.train.targets.dtype) == (np.uint8, np.int64)
    assert len(found.test) == 0
    coloured = pixels(32, 32, 3)
    found = load(save(tmp_path / "partition_1", coloured, "img"), CIFAR10)
    np.testing.assert_array_equal(found.train.inputs, coloured.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("size", "column", "reason"),
    [(32, "image", "inputs are uint8 (12, 32, 32), not uint8 (n"), (28, "picture", "image")],
)
def test_saved_rows_of_another_data_set_are_one_line(tmp_path, size, column, reason):
    other = save(tmp_path / "other", pixels(size, size), column)
    with one_line(DataError, "other cannot be loaded (", reason, "; create"):
        load(other)
