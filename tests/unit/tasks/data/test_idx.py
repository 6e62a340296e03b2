import gzip

import numpy as np
import pytest

from tasks.data import idx
from tasks.data.dataset import DataError
from tests.support import idx_files
from tests.support.idx_files import NAMES


def read(folder):
    return idx.read(idx.find(folder))


@pytest.mark.parametrize("packed", [True, False])
def test_plain_and_gzipped_files_give_the_arrays(mnist_files, packed):
    folder, contents = mnist_files
    if not packed:
        for name, array in contents.items():
            (folder / f"{name}.gz").unlink()
            (folder / name).write_bytes(idx_files.encode(array))
    train, test = read(folder)
    assert np.array_equal(train.inputs, contents[NAMES[0]])
    assert np.array_equal(train.targets, contents[NAMES[1]])
    assert np.array_equal(test.inputs, contents[NAMES[2]])
    assert np.array_equal(test.targets, contents[NAMES[3]])
    assert train.targets.dtype == np.int64


def damage(folder, kind):
    path = folder / f"{NAMES[0]}.gz"
    whole = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(whole[:-40])
    elif kind == "flipped byte":
        path.write_bytes(whole[:500] + bytes([whole[500] ^ 255]) + whole[501:])
    elif kind == "not gzip":
        path.write_bytes(b"<html>not found</html>")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "short":
        path.write_bytes(gzip.compress(gzip.decompress(whole)[:-1]))
    elif kind == "labels":
        path.write_bytes((folder / f"{NAMES[1]}.gz").read_bytes())


@pytest.mark.parametrize(
    "kind", ["missing", "truncated", "flipped byte", "not gzip", "empty", "short", "labels"]
)
def test_damaged_file_is_named_in_one_line(mnist_files, kind):
    folder, _ = mnist_files
    damage(folder, kind)
    with pytest.raises(DataError) as caught:
        read(folder)
    assert NAMES[0] in str(caught.value)
    assert "\n" not in str(caught.value)
