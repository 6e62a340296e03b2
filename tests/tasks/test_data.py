import gzip
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import datasets
import numpy as np
import pytest

from tasks.data import store
from tasks.data.mnist import MNIST
from tasks.data.store import DataError, DataOptions, Split

NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte",
         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def idx(array):
    """An IDX file by its specification: two zeros, type 8 (bytes), rank, sizes, data."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


@pytest.fixture
def files(tmp_path):
    """Twelve training and five test images of noise, as gzipped IDX files."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "files"
    folder.mkdir()
    contents = {}
    for count, images, labels in ((12, *NAMES[:2]), (5, *NAMES[2:])):
        contents[images] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        contents[labels] = rng.integers(0, 10, count, dtype=np.uint8)
    for name, array in contents.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return folder, contents


def test_the_embedded_default_is_5000_real_digits(cache):
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


def test_data_are_parsed_once_and_memory_mapped(cache):
    calls = []

    def parse():
        calls.append(1)
        return (Split(np.arange(6).reshape(3, 2), np.arange(3)),) * 2

    first = store.load("a/b", parse, DataOptions(), "made up")
    again = store.load("a/b", parse, DataOptions(), "made up")
    assert calls == [1]
    assert isinstance(again.train.inputs, np.memmap)
    again.train.inputs[:] = 9  # of this process only
    assert store.load("a/b", parse, DataOptions(), "made up").train.inputs.max() == 5
    assert first.fingerprint == again.fingerprint
    other = (Split(np.arange(6).reshape(3, 2), np.arange(1, 4)),) * 2
    assert store.load("a/c", lambda: other, DataOptions(), "").fingerprint != first.fingerprint


def test_several_may_store_at_once(cache):
    barrier = threading.Barrier(4)

    def parse():
        barrier.wait(10)
        return (Split(np.arange(1000), np.arange(1000)),) * 2

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(store.load, "race", parse, DataOptions(), "") for _ in range(4)]
        assert len({job.result().fingerprint for job in jobs}) == 1
    assert [path.name for path in cache.iterdir()] == ["race"]


def test_an_unwritable_cache_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(store.CACHE_VARIABLE, str(tmp_path / "file" / "cache"))
    for source in ("embedded", "mirror"):
        with pytest.raises(DataError, match=r"cannot write the data cache .*\$FEDAVG_APP_CACHE"):
            MNIST.load(DataOptions(source))


@pytest.mark.parametrize("packed", [True, False])
def test_a_directory_of_idx_files(cache, files, packed):
    folder, contents = files
    if not packed:
        for name, array in contents.items():
            (folder / f"{name}.gz").unlink()
            (folder / name).write_bytes(idx(array))
    data = MNIST.load(DataOptions(directory=str(folder)))
    assert np.array_equal(data.train.inputs, contents[NAMES[0]])
    assert np.array_equal(data.train.targets, contents[NAMES[1]])
    assert np.array_equal(data.test.inputs, contents[NAMES[2]])
    assert np.array_equal(data.test.targets, contents[NAMES[3]])
    assert data.train.targets.dtype == np.int64
    assert str(folder) in data.description


def test_changed_files_are_not_taken_from_the_cache(cache, files):
    folder, contents = files
    before = MNIST.load(DataOptions(directory=str(folder)))
    labels = (contents[NAMES[1]] + 1) % 10
    (folder / f"{NAMES[1]}.gz").write_bytes(gzip.compress(idx(labels)))
    after = MNIST.load(DataOptions(directory=str(folder)))
    assert before.fingerprint != after.fingerprint
    assert np.array_equal(after.train.targets, labels)


def damage(folder, kind):
    path = folder / f"{NAMES[0]}.gz"
    whole = path.read_bytes()
    if kind == "missing":
        path.unlink()
    elif kind == "truncated":
        path.write_bytes(whole[:-40])
    elif kind == "flipped":
        path.write_bytes(whole[:500] + bytes([whole[500] ^ 255]) + whole[501:])
    elif kind == "no gzip":
        path.write_bytes(b"<html>not found</html>")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "short":
        path.write_bytes(gzip.compress(gzip.decompress(whole)[:-1]))
    elif kind == "labels":
        path.write_bytes((folder / f"{NAMES[1]}.gz").read_bytes())


@pytest.mark.parametrize(
    "kind", ["missing", "truncated", "flipped", "no gzip", "empty", "short", "labels"]
)
def test_a_damaged_file_is_named(cache, files, kind):
    folder, _ = files
    damage(folder, kind)
    with pytest.raises(DataError) as caught:
        MNIST.load(DataOptions(directory=str(folder)))
    assert NAMES[0] in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not store.is_stored("mnist")


def test_different_counts_are_named(cache, files):
    folder, contents = files
    (folder / f"{NAMES[1]}.gz").write_bytes(gzip.compress(idx(contents[NAMES[1]][:-1])))
    with pytest.raises(DataError, match=r"has 12 images but .* 11 labels"):
        MNIST.load(DataOptions(directory=str(folder)))


@pytest.mark.parametrize(
    ("name", "array", "fragment"),
    [
        (NAMES[0], np.zeros((12, 10, 10)), "train-images-idx3-ubyte holds 12x10x10 pixels"),
        (NAMES[3], np.full(5, 77), "t10k-labels-idx1-ubyte has the label 77"),
    ],
)
def test_well_formed_files_of_something_else_are_named(cache, files, name, array, fragment):
    folder, _ = files
    (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    with pytest.raises(DataError, match=fragment):
        MNIST.load(DataOptions(directory=str(folder)))


def test_a_truncated_plain_file_is_named(cache, files):
    folder, contents = files
    (folder / f"{NAMES[2]}.gz").unlink()
    (folder / NAMES[2]).write_bytes(idx(contents[NAMES[2]])[:-1])
    with pytest.raises(DataError, match=NAMES[2]):
        MNIST.load(DataOptions(directory=str(folder)))


@pytest.mark.parametrize("name", ["meta.json", "train-inputs.npy"])
def test_a_damaged_cache_is_named(cache, name):
    MNIST.load(DataOptions("embedded"))
    (cache / "mnist" / "embedded" / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"cache .*/mnist/embedded is damaged; delete it"):
        MNIST.load(DataOptions("embedded"))


def test_no_directory(cache):
    with pytest.raises(DataError, match="data-dir = '/no/such' is not a directory"):
        MNIST.load(DataOptions(directory="/no/such"))


@pytest.fixture
def mirror(files):
    """Serve the files on this machine; return the mirror's address."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(files[0]))
    handler.func.log_message = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


DEAD = "http://127.0.0.1:9/"


def checksums(folder):
    return {
        f"{name}.gz": hashlib.md5((folder / f"{name}.gz").read_bytes()).hexdigest()
        for name in NAMES
    }


def test_the_second_mirror_serves_where_the_first_is_down(cache, files, mirror):
    folder, contents = files
    served = replace(MNIST, mirrors=(DEAD, mirror), checksums=checksums(folder))
    data = served.load(DataOptions("auto"))
    assert np.array_equal(data.train.inputs, contents[NAMES[0]])
    assert data.options == DataOptions("mirror")
    # From now on the cache serves, also without a mirror.
    unserved = replace(served, mirrors=(DEAD,))
    assert unserved.load(DataOptions("auto")).fingerprint == data.fingerprint
    assert unserved.load(DataOptions("mirror")).fingerprint == data.fingerprint


def test_a_wrong_checksum_is_not_accepted(cache, files, mirror):
    wrong = checksums(files[0]) | {f"{NAMES[2]}.gz": "0" * 32}
    with pytest.raises(DataError, match="no mirror gave MNIST") as caught:
        replace(MNIST, mirrors=(mirror,), checksums=wrong).load(DataOptions("mirror"))
    assert mirror in str(caught.value)
    assert "data-dir" in str(caught.value)


def test_auto_takes_the_embedded_default_without_a_network_and_says_so(cache):
    data = replace(MNIST, mirrors=(DEAD,)).load(DataOptions("auto"))
    assert data.options == DataOptions("embedded")
    assert "embedded" in data.description


def test_the_hub(cache, files, monkeypatch):
    _, contents = files

    def load_dataset(name):
        assert name == "ylecun/mnist"
        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
        return datasets.DatasetDict(
            {
                split: datasets.Dataset.from_dict(
                    {"image": list(contents[images]), "label": contents[labels]}, features=features
                )
                for split, images, labels in (("train", *NAMES[:2]), ("test", *NAMES[2:]))
            }
        )

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = MNIST.load(DataOptions("hub"))
    assert np.array_equal(data.train.inputs, contents[NAMES[0]])
    assert np.array_equal(data.test.targets, contents[NAMES[3]])


def test_a_hub_that_cannot_be_reached_is_no_silent_fallback(cache, monkeypatch):
    def load_dataset(name):
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"data-source = 'hub': cannot load ylecun/mnist"):
        MNIST.load(DataOptions("hub"))
