import pickle
import tarfile

import numpy as np
import pytest
import torchvision

from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataError, DataOptions
from tests.support import data_slices
from tests.support.one_line import one_line

pytestmark = pytest.mark.usefixtures("cache")

NAMES = [f"data_batch_{n}.bin" for n in (1, 2, 3, 4, 5)] + ["test_batch.bin"]


@pytest.fixture
def folder(tmp_path):
    data_slices.cifar10(tmp_path, images=7)
    return tmp_path


def load(folder):
    return CIFAR10.load(DataOptions(directory=str(folder)))


def as_python_version(folder):
    """Turn the folder's files into the pickles of the python distribution."""
    inner = folder / "cifar-10-batches-py"
    inner.mkdir()
    for name in NAMES:
        records = np.fromfile(folder / name, dtype=np.uint8).reshape(-1, 3073)
        batch = {"data": records[:, 1:].copy(), "labels": records[:, 0].tolist()}
        (inner / name.removesuffix(".bin")).write_bytes(pickle.dumps(batch, protocol=2))
        (folder / name).unlink()
    (inner / "batches.meta").write_bytes(pickle.dumps({"label_names": list("0123456789")}))


def test_binary_record_is_a_label_and_three_colour_planes(folder):
    data = load(folder)
    assert data.train.inputs.shape == (35, 3, 32, 32)
    assert data.test.inputs.shape == (7, 3, 32, 32)
    record = (folder / NAMES[2]).read_bytes()[2 * 3073 : 3 * 3073]  # the third of the third file
    assert data.train.targets[16] == record[0]
    assert data.train.inputs[16].tobytes() == record[1:]
    assert data.train.inputs[16][1, 2, 3] == record[1 + 1024 + 2 * 32 + 3]  # green, row 2, column 3


@pytest.mark.parametrize("distribution", ["python", "inner folder", "binary.tar.gz"])
def test_all_distributions_give_the_same_data(folder, distribution, monkeypatch):
    before = load(folder).fingerprint
    if distribution == "python":
        as_python_version(folder)
        with pytest.raises(DataError, match="not found or corrupted"):
            load(folder)  # its checksums are not those of CIFAR-10
        monkeypatch.setattr(torchvision.datasets.cifar, "check_integrity", lambda *_: True)
    if distribution == "inner folder":
        inner = folder / "cifar-10-batches-bin"
        inner.mkdir()
        for name in NAMES:
            (folder / name).rename(inner / name)
    if "tar" in distribution:
        with tarfile.open(folder / f"cifar-10-{distribution}", f"w:{distribution[-2:]}") as archive:
            for path in sorted(folder.glob("*_batch*")):
                archive.add(path, f"cifar-10-batches-bin/{path.name}")
                path.unlink()
    assert load(folder).fingerprint == before


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (None, "has no data_batch_2.bin; give"),
        (lambda whole: whole[:-100], "data_batch_2.bin cannot be loaded"),
        (lambda whole: b"", "all input arrays must have the same shape"),
        (lambda whole: b"\x0a" + whole[1:], "targets must be 0 to 9"),
    ],
    ids=["missing", "truncated", "empty", "label"],
)
def test_damaged_binary_file_is_reported(folder, damage, reason):
    path = folder / NAMES[1]
    whole = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(whole))
    with one_line(DataError, reason):
        load(folder)
