import numpy as np
import pytest

from tasks.data import npz_archive
from tasks.data.dataset import DataError, DataOptions
from tasks.data.mnist import MNIST
from tasks.data.npz_archive import Schema

pytestmark = pytest.mark.usefixtures("cache")

IMAGES = np.arange(5 * 28 * 28, dtype=np.uint8).reshape(5, 28, 28)
LABELS = np.array([3, 1, 4, 1, 5])


def load(folder):
    return MNIST.load(DataOptions(directory=str(folder), own=True))


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
        (
            IMAGES.astype(float),
            LABELS,
            r"are float64 \(5, 28, 28\), not uint8 \(n, 28, 28\)",
        ),
        (IMAGES, LABELS[:4], r"targets are \(4,\) for 5 inputs"),
        (IMAGES, LABELS + 0.5, "targets are float64, not integers"),
        (IMAGES, LABELS + 6, "targets must be 0 to 9"),
        (np.array([None] * 5), LABELS, "corrupt or has no arrays"),
    ],
)
def test_arrays_that_do_not_fit_schema_are_rejected(tmp_path, inputs, targets, reason):
    np.savez(tmp_path / "train.npz", inputs=inputs, targets=targets)
    with pytest.raises(DataError, match=reason) as caught:
        load(tmp_path)
    assert "train.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "targets", "reason"),
    [
        ([[0, 1], [2, 9]], [[1, 1], [1, 1]], "inputs must be 0 to 8"),
        ([[0, 1], [2, -1]], [[1, 1], [1, 1]], "inputs must be 0 to 8"),
        ([[0, 1], [2, 3]], [[1, 1], [-1, -100]], "an example has no prediction"),
    ],
)
def test_sequences_that_a_model_cannot_take_are_rejected(tmp_path, inputs, targets, reason):
    schema = Schema(np.int16, (2,), classes=9, predictions=(2,), symbols=9)
    np.savez(tmp_path / "train.npz", inputs=np.array(inputs, np.int16), targets=targets)
    with pytest.raises(DataError, match=reason):
        npz_archive.read(npz_archive.find(tmp_path), schema)


def test_every_negative_target_is_one_that_the_loss_ignores(tmp_path):
    schema = Schema(np.int16, (2,), classes=9, predictions=(2,))
    inputs = np.zeros((2, 2), np.int16)
    np.savez(tmp_path / "train.npz", inputs=inputs, targets=[[1, -1], [-7, 2]])
    train, _ = npz_archive.read(npz_archive.find(tmp_path), schema)
    assert train.targets.tolist() == [[1, -100], [-100, 2]]
