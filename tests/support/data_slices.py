"""Small slices of real data sets, written as the canonical files of a data-dir.

Where the whole data sets are beside the checkout, or in $FEDAVG_APP_TEST_DATA, the slices are cut
out of them. Elsewhere CIFAR-10 is patches of two photographs with numbers for labels, Fashion-MNIST
is digits, and the reviews are sentences that name their stars: files of the same format.
"""

import csv
import os
import tarfile
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tasks.data import cifar, idx
from tasks.data.dataset import DataOptions
from tasks.data.mnist import FASHION_MNIST, MNIST
from tasks.data.shakespeare import AUTHOR, THE_END, embedded_roles

WHOLE = Path(os.environ.get("FEDAVG_APP_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_whole_data = pytest.mark.skipif(
    not WHOLE.is_dir(), reason="needs the whole data sets: set FEDAVG_APP_TEST_DATA"
)


def cifar10(folder, images=20):
    """Write the binary version with ``images`` images in each of its six files."""
    records = _cifar_records()
    names = cifar.FILES
    for number, name in enumerate(names):
        batch = records[number * images : (number + 1) * images]
        (folder / name).write_bytes(batch.tobytes())


@cache
def _cifar_records(count=120):
    """Return records of the binary version; cached, for unpacking a whole file takes seconds."""
    archive = WHOLE / "cifar10" / "cifar-10-binary.tar.xz"
    if archive.is_file():
        with tarfile.open(archive) as packed:
            member = next(m for m in packed if m.name.endswith(".bin"))
            content = packed.extractfile(member).read(count * cifar.RECORD)
        return np.frombuffer(content, dtype=np.uint8).reshape(count, cifar.RECORD)
    from sklearn.datasets import load_sample_images

    photos = load_sample_images().images
    records = []
    for number in range(count):
        photo = photos[number % 2]
        row, column = 32 * (number // 2 % 12), 32 * (number // 24 % 19)
        patch = photo[row : row + 32, column : column + 32].transpose(2, 0, 1)
        records.append(np.concatenate([[number % 10], patch.ravel()]).astype(np.uint8))
    return np.stack(records)


def mnist(folder, source=MNIST, images=120):
    """Write IDX files; of Fashion-MNIST where its Debian package is installed, else of MNIST."""
    installed = source is FASHION_MNIST and FASHION_MNIST.package[0].is_dir()
    options = DataOptions(directory=str(FASHION_MNIST.package[0]))
    data = FASHION_MNIST.load(options) if installed else MNIST.load(DataOptions("embedded"))
    step = max(len(data.train) // images, 1)
    for names, split in zip(idx.FILES, (data.train, data.test), strict=True):
        for name, array in zip(names, (split.inputs[::step], split.targets[::step]), strict=True):
            chosen = np.ascontiguousarray(array[:images]).astype(np.uint8)
            sizes = b"".join(size.to_bytes(4, "big") for size in chosen.shape)
            (folder / name).write_bytes(bytes([0, 0, 8, chosen.ndim]) + sizes + chosen.tobytes())


def fashion_mnist(folder):
    """Write IDX files, see `mnist`."""
    mnist(folder, FASHION_MNIST)


def shakespeare(folder, roles=4, lines=12):
    """Write a few roles of Macbeth in the format of the Gutenberg text."""
    chosen = [(n, said) for (play, n), said in embedded_roles().items() if play == "macbeth"]
    chosen = [(name.title(), said) for name, said in chosen if len(said) >= lines][:roles]
    text = ["MACBETH", "", AUTHOR, ""]
    for name, said in chosen:
        text += [f"  {name}. {said[0]}", *(f"    {line}" for line in said[1:lines]), ""]
    text += ["", THE_END]
    (folder / "pg100.txt").write_text("\n".join(text), encoding="utf-8")


def yelp(folder, reviews=100):
    """Write the first reviews; where there are none, sentences that name their stars."""
    examples = [
        {"stars": 1 + number % 5, "text": f"Review {number}: {1 + number % 5} of five, I'd say."}
        for number in range(reviews)
    ]
    if (WHOLE / "yelp" / "yelp.csv").is_file():
        with (WHOLE / "yelp" / "yelp.csv").open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            examples = [
                {key: row[key] for key in ("stars", "text")} for row in islice(rows, reviews)
            ]
    with (folder / "yelp.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["stars", "text"])
        writer.writeheader()
        writer.writerows(examples)


# What writes a task's slice, by the first part of the task's name.
WRITERS = {
    "cifar10": cifar10, "fashion": fashion_mnist, "mnist": mnist,
    "shakespeare": shakespeare, "yelp": yelp,
}  # fmt: skip


def write(task, folder):
    """Write a task's slice into the folder, unless the folder exists; return the folder."""
    if folder.is_dir():
        return folder
    folder.mkdir(parents=True)
    WRITERS[task.partition("-")[0]](folder)
    return folder
