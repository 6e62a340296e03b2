import gzip

import numpy as np
import pytest

from tasks.data.dataset import DataError, DataOptions
from tasks.data.mnist import MNIST
from tests.support import idx_files
from tests.support.idx_files import NAMES
from tests.support.one_line import one_line


def test_embedded_subset_is_5000_distinct_real_digits():
    data = MNIST.load(DataOptions("embedded"))
    assert data.train.inputs.shape == (4000, 28, 28)
    assert data.test.inputs.shape == (1000, 28, 28)
    assert data.train.inputs.dtype == np.uint8
    assert np.bincount(data.train.targets).tolist() == [400] * 10
    assert np.bincount(data.test.targets).tolist() == [100] * 10
    images = np.concatenate([data.train.inputs, data.test.inputs])
    assert len({image.tobytes() for image in images}) == 5000
    # MNIST's mean and standard deviation, to the accuracy of a sample of 5,000.
    assert images.mean() / 255 == pytest.approx(0.1307, abs=0.003)
    assert images.std() / 255 == pytest.approx(0.3081, abs=0.005)
    assert "embedded" in data.description


def load(folder):
    return MNIST.load(DataOptions(directory=str(folder)))


@pytest.mark.parametrize("packed", [True, False])
def test_plain_and_gzipped_files_give_the_arrays(cache, mnist_files, packed):
    folder, contents = mnist_files
    if not packed:
        for name, array in contents.items():
            (folder / f"{name}.gz").unlink()
            (folder / name).write_bytes(idx_files.encode(array))
    data = load(folder)
    found = (data.train.inputs, data.train.targets, data.test.inputs, data.test.targets)
    for name, array in zip(NAMES, found, strict=True):
        assert np.array_equal(array, contents[name])
    assert data.train.targets.dtype == np.int64


DAMAGES = {
    "missing": None,
    "truncated": lambda whole: whole[:-40],
    "flipped byte": lambda whole: whole[:500] + bytes([whole[500] ^ 255]) + whole[501:],
    "not gzip": lambda whole: b"<html>not found</html>",
    "empty": lambda whole: b"",
    "short": lambda whole: gzip.compress(gzip.decompress(whole)[:-1]),
    "labels": lambda whole: gzip.compress(idx_files.encode(np.zeros(12))),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_file_is_named_in_one_line(cache, mnist_files, kind):
    path = mnist_files[0] / f"{NAMES[0]}.gz"
    whole = path.read_bytes()
    path.unlink()
    if kind != "missing":
        path.write_bytes(DAMAGES[kind](whole))
    with one_line(DataError, NAMES[0]):
        load(path.parent)


def test_valid_idx_files_of_other_data_are_rejected(cache, mnist_files):
    folder, _ = mnist_files
    idx_files.replace(folder, NAMES[3], np.full(5, 77))
    with pytest.raises(DataError, match="targets must be 0 to 9"):
        load(folder)
    assert not list(cache.rglob("*.safetensors"))
