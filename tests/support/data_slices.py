"""Small data sets, written as the canonical files of a data-dir.

MNIST's digits, which stand for Fashion-MNIST's pictures as well, and Shakespeare's roles come with
packages. CIFAR-10 is noise, and the reviews name their stars. test_sources.py reads the whole data
sets, where they are beside the checkout or in $FEDAVG_APP_TEST_DATA.
"""

import csv
import os
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
    rng = np.random.default_rng(0)
    for name in cifar.FILES:
        records = rng.integers(0, 256, (images, cifar.RECORD), dtype=np.uint8)
        records[:, 0] = np.arange(images) % 10
        (folder / name).write_bytes(records.tobytes())


def mnist(folder, images=120):
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
    """Write sentences that name their stars."""
    with (folder / "yelp.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["stars", "text"])
        for number in range(reviews):
            stars = 1 + number % 5
            writer.writerow([stars, f"Review {number}: {stars} of five, I'd say."])


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
