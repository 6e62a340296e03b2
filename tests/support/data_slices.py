"""Small slices of real data sets, written as the canonical files of a data-dir.

Where the whole data sets are beside the checkout, or in $FEDAVG_APP_TEST_DATA, the slices are cut
out of them. Elsewhere CIFAR-10 is patches of two photographs with numbers for labels, and the
reviews are sentences that name their stars: files of the same format. Fashion-MNIST is digits.
"""

import csv
import os
import tarfile
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from tasks.data import cifar
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tasks.data.shakespeare import AUTHOR, THE_END, embedded_roles
from tests.support import idx_files

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


def mnist(folder, images=120):
    """Write IDX files."""
    data = MNIST.load(DataOptions("embedded"))
    step = max(len(data.train) // images, 1)
    arrays = [
        array[::step][:images] for split in (data.train, data.test)
        for array in (split.inputs, split.targets)
    ]  # fmt: skip
    for name, array in zip(idx_files.NAMES, arrays, strict=True):
        (folder / name).write_bytes(idx_files.encode(array))


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
    "cifar10": cifar10, "fashion": mnist, "mnist": mnist,
    "shakespeare": shakespeare, "yelp": yelp,
}  # fmt: skip


def write(task, folder):
    """Write a task's slice into the folder, unless the folder exists; return the folder."""
    if folder.is_dir():
        return folder
    folder.mkdir(parents=True)
    WRITERS[task.partition("-")[0]](folder)
    return folder
