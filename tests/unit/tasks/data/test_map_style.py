"""A data set of the hub by its columns, read from a copy of its folder."""

import shutil

import datasets
import numpy as np
import pytest
from PIL import Image

from tasks.data.dataset import DataError, DataOptions
from tasks.data.map_style import hub_dataset
from tests.support.one_line import one_line

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (10, 4, 6), dtype=np.uint8)
COLOURED = RNG.integers(0, 256, (10, 4, 6, 3), dtype=np.uint8)
KINDS = RNG.integers(0, 3, 10)
TOKENS = RNG.integers(0, 99, (10, 5))
WRITERS = [f"writer {number % 3}" for number in range(10)]


def rows():
    columns = {
        "grey": [Image.fromarray(image) for image in GREY],
        "coloured": [Image.fromarray(image) for image in COLOURED],
        "tokens": TOKENS.tolist(),
        "kind": KINDS.tolist(),
        "score": [number / 7 for number in range(10)],
        "writer": WRITERS,
    }
    return datasets.Dataset.from_dict(columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A copy of a hub's folder, with 10 rows in one split."""
    path = tmp_path_factory.mktemp("hub") / "copy"
    rows().to_parquet(path / "data" / "train-00000-of-00001.parquet")
    return path


def load(folder, *columns, **options):
    return hub_dataset("made/up", *columns, **options)(DataOptions(directory=str(folder)))


def read(split):
    return [split.read(number) for number in range(len(split))]


@pytest.mark.parametrize(
    ("column", "expected"),
    [("grey", GREY[:, None]), ("coloured", COLOURED.transpose(0, 3, 1, 2)), ("tokens", TOKENS)],
)
def test_columns_become_arrays_and_rows_splits(folder, column, expected):
    data = load(folder, column, "kind", train="train[:80%]", test="train[80%:]")
    found = [*read(data.train), *read(data.test)]
    assert (len(data.train), len(data.test)) == (8, 2)
    np.testing.assert_array_equal([image for image, _ in found], expected)
    assert [kind for _, kind in found] == KINDS.tolist()
    np.testing.assert_array_equal(data.train.labels, KINDS[:8])


def test_several_columns_are_a_dictionary_and_owners_are_numbered(folder):
    data = load(folder, ("grey", "tokens"), "score", owner="writer", test="train[:1]")
    inputs, score = data.train.read(3)
    np.testing.assert_array_equal(inputs["grey"], GREY[3:4])
    np.testing.assert_array_equal(inputs["tokens"], TOKENS[3])
    assert (score, data.train.labels) == (pytest.approx(3 / 7), None)
    assert data.train.owners.tolist() == [number % 3 for number in range(10)]


def test_devices_with_copies_of_the_folder_have_the_same_data(folder, tmp_path):
    """And other labels or rows are other data."""
    other = shutil.copytree(folder, tmp_path / "elsewhere")
    arguments = {"train": "train[:80%]", "test": "train[80%:]"}
    first, second = (load(path, "grey", "kind", **arguments) for path in (folder, other))
    assert (first.fingerprint, first.digest()) == (second.fingerprint, second.digest())
    fewer = load(folder, "grey", "kind", **arguments | {"train": "train[:70%]"})
    assert fewer.fingerprint != first.fingerprint


def test_folder_of_flwr_datasets_is_training_data(tmp_path):
    rows().save_to_disk(tmp_path)
    data = load(tmp_path, "grey", "kind")
    assert (len(data.train), len(data.test)) == (10, 0)
    np.testing.assert_array_equal(data.train.read(9)[0], GREY[9:])


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (
            ("picture", "kind"),
            r"'picture'\] not in the dataset. Current columns in the dataset: \['g",
        ),
        (("writer", "kind"), "an example has a str: give numbers or images"),
    ],
)
def test_columns_that_cannot_be_read_are_named(folder, columns, error):
    with pytest.raises(DataError, match=error):
        load(folder, *columns, test="train[:1]")


def test_data_set_that_is_not_there_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    with one_line(DataError, "give data-dir, a copy of the hub's folder"):
        load(tmp_path / "empty", "grey", "kind")
