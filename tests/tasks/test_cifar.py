import io
import pickle
import tarfile

import datasets
import numpy as np
import pytest
import torch
from torch import nn

import tasks
from tasks.base import Examples
from tasks.cifar import CIFAR10_CNN, CIFAR10_VGG, LocalResponseNorm
from tasks.data import cifar, store
from tasks.data.cifar import CIFAR10
from tasks.data.store import DataError, DataOptions
from tests import slices

NAMES = [f"data_batch_{n}.bin" for n in (1, 2, 3, 4, 5)] + ["test_batch.bin"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    slices.cifar10(tmp_path, images=7)
    return tmp_path


def load(folder):
    return CIFAR10.load(DataOptions(directory=str(folder)))


def as_python_version(folder):
    """Turn the folder's files into the python distribution, as the authors' pickles are."""
    for number, name in enumerate(NAMES):
        records = np.fromfile(folder / name, dtype=np.uint8).reshape(-1, 3073)
        batch = {b"data": records[:, 1:].copy(), b"labels": records[:, 0].tolist()}
        (folder / cifar.BATCHES[number]).write_bytes(pickle.dumps(batch, protocol=2))
        (folder / name).unlink()


def test_the_numbers_of_parameters():
    for task, expected in ((CIFAR10_CNN, 1_068_298), (CIFAR10_VGG, 865_482)):
        model = task.initial_model(1)
        assert sum(p.numel() for p in model.parameters()) == expected
        assert sum(a.numel() for a in model.state_dict().values()) == expected
        assert tasks.load(task.name) is task


def test_local_response_norm_is_torchs():
    images = torch.randn(4, 64, 5, 5) * 30
    reference = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
    torch.testing.assert_close(LocalResponseNorm(64)(images), reference(images))


def test_a_record_is_a_label_and_three_planes(folder):
    data = load(folder)
    assert data.train.inputs.shape == (35, 3, 32, 32)
    assert data.test.inputs.shape == (7, 3, 32, 32)
    record = (folder / NAMES[2]).read_bytes()[2 * 3073 : 3 * 3073]  # the third of the third file
    assert data.train.targets[16] == record[0]
    assert data.train.inputs[16].tobytes() == record[1:]
    assert data.train.inputs[16][1, 2, 3] == record[1 + 1024 + 2 * 32 + 3]  # green, row 2, column 3


@pytest.mark.parametrize("form", ["python", "inner folder", "binary.tar.gz", "python.tar.xz"])
def test_all_forms_give_the_same_data(folder, form):
    before = load(folder).fingerprint
    if "python" in form:
        as_python_version(folder)
    if form == "inner folder":
        inner = folder / "cifar-10-batches-bin"
        inner.mkdir()
        for name in NAMES:
            (folder / name).rename(inner / name)
    if "tar" in form:
        with tarfile.open(folder / f"cifar-10-{form}", f"w:{form[-2:]}") as archive:
            for path in sorted(folder.glob("*_batch*")):
                archive.add(path, f"cifar-10-batches-py/{path.name}")
                path.unlink()
    assert load(folder).fingerprint == before


def test_the_hub(folder, monkeypatch):
    local = load(folder)

    def table(split):
        columns = {"img": list(split.inputs.transpose(0, 2, 3, 1)), "label": split.targets}
        features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
        return datasets.Dataset.from_dict(columns, features=features)

    hub = {"uoft-cs/cifar10": {"train": table(local.train), "test": table(local.test)}}
    monkeypatch.setattr(datasets, "load_dataset", hub.__getitem__)
    data = CIFAR10.load(DataOptions("hub"))
    assert data.fingerprint == local.fingerprint
    assert data.description == "CIFAR-10, 50,000 + 10,000 images, from the hub"


def damage(folder, kind):
    path = folder / NAMES[1]
    whole = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(whole[:-100])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "short":
        path.write_bytes(whole[: 3 * 3073])
    elif kind == "label":
        path.write_bytes(b"\x0a" + whole[1:])


def test_a_file_cut_at_an_image_is_noticed(folder):
    damage(folder, "short")
    with pytest.raises(DataError, match=r"has batches of \{3, 7\} images, not of one size"):
        load(folder)


@pytest.mark.parametrize("kind", ["missing", "truncated", "empty", "label"])
def test_a_damaged_binary_file_is_named(folder, kind):
    damage(folder, kind)
    with pytest.raises(DataError, match=r"data_batch_2\.bin is (missing|truncated|corrupt)") as got:
        load(folder)
    assert "\n" not in str(got.value)


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('code from a pickle ran')",)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        pickle.dumps({b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2]}),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [-1]}),
        pickle.dumps([1]),
        pickle.dumps({b"data": Evil(), b"labels": []}),
    ],
    ids=["empty", "page", "counts", "label", "list", "code"],
)
def test_a_damaged_pickle_is_named_and_runs_nothing(folder, content):
    as_python_version(folder)
    (folder / "data_batch_4").write_bytes(content)
    with pytest.raises(DataError, match=r"data_batch_4 is corrupt or truncated"):
        load(folder)


def test_a_damaged_archive_is_named(folder):
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name in NAMES:
            archive.add(folder / name, name)
            (folder / name).unlink()
    path = folder / "cifar-10-binary.tar.gz"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(DataError, match=r"cifar-10-binary\.tar\.gz is corrupt or truncated"):
        load(folder)
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("readme.html"), io.BytesIO())
    with pytest.raises(DataError, match=r"has 0 batches, not 6"):
        load(folder)


def test_without_files_it_names_the_ways_to_get_them(tmp_path):
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    for way in ("data-dir", "cifar-10-binary.tar.gz", "data-source=mirror", "data-source=hub"):
        assert way in str(caught.value)
    with pytest.raises(DataError, match="'embedded': CIFAR-10 has none; give data-dir"):
        CIFAR10.load(DataOptions("embedded"))


@pytest.mark.parametrize("task", [CIFAR10_CNN, CIFAR10_VGG])
def test_training_examples_are_distorted_anew_and_test_examples_are_not(folder, task):
    data = load(folder)
    train = Examples.stored(task, data.train, torch.device("cpu"), training=True)
    test = Examples.stored(task, data.test, torch.device("cpu"))
    side = 24 if task is CIFAR10_CNN else 32
    first, second = train.part(0, 35)[0], train.part(0, 35)[0]
    assert first.shape == (35, 3, side, side)
    assert not torch.equal(first, second)
    assert torch.equal(test.part(0, 7)[0], test.part(0, 7)[0])
    assert task.model()(first).shape == (35, 10)


def test_the_tutorials_test_image_is_the_whitened_centre(folder):
    data = load(folder)
    inputs = CIFAR10_CNN.prepare(torch.from_numpy(data.test.inputs[:2].copy()))
    centre = data.test.inputs[:2, :, 4:28, 4:28].astype(np.float64)
    for image, prepared in zip(centre, inputs.numpy(), strict=True):
        np.testing.assert_allclose(prepared, (image - image.mean()) / image.std(), atol=1e-5)


@slices.needs_whole_data
def test_the_whole_data_set(tmp_path):
    folder = slices.WHOLE / "cifar10"
    data = load(folder)
    assert np.bincount(data.train.targets).tolist() == [5000] * 10
    assert np.bincount(data.test.targets).tolist() == [1000] * 10
    pixels = data.train.inputs / np.float32(255)
    assert pixels.mean(axis=(0, 2, 3)) == pytest.approx([0.49140, 0.48216, 0.44653], abs=1e-4)
