"""The tasks of docs/writing-a-task.md on pictures, tables and data sets of the hub; FEMNIST."""

import importlib
import sys

import datasets
import numpy as np
import pytest
from PIL import Image

from fedavg_app.config import parse_config
from fedavg_app.partitioning import partition
from fedavg_app.server.preparation import prepare
from tasks.data.dataset import DataOptions
from tests.support.documents import ROOT, examples
from tests.support.in_process import make_config, run_here

EXAMPLES = examples(ROOT / "docs" / "writing-a-task.md")


@pytest.fixture
def tasks_of_the_page(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("pictures_task", "table_task", "hub_task", "femnist_task"):
        (tmp_path / f"{name}.py").write_text(EXAMPLES[f"{name}.py"])
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module


def write_pictures(folder):
    """Write cats that are bright on the left, and dogs that are bright on the right."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 6)):
        for name, bright in (("cat", slice(0, 16)), ("dog", slice(16, 32))):
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 60, (32, 32, 3)).astype(np.uint8)
                pixels[:, bright] += 100
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")


def write_table(folder):
    """Write rows whose class is that of the largest of their first three numbers."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for split, count in (("train", 200), ("test", 60)):
        rows = rng.normal(size=(count, 4))
        table = np.column_stack([rows, rows[:, :3].argmax(axis=1)])
        style = {"delimiter": ",", "header": "a,b,c,d,class", "comments": ""}
        np.savetxt(folder / f"{split}.csv", table, **style)


def accuracy(task, rounds, **keys):
    config = parse_config(
        {"task": task, "num-clients": 4, "fraction-train": 1.0, "local-epochs": 5,
         "num-server-rounds": rounds, "target": "none", **keys}
    )  # fmt: skip
    return run_here(config).history[-1].accuracy


def test_pictures_are_told_apart(tasks_of_the_page, tmp_path):
    write_pictures(tmp_path / "pictures")
    assert accuracy("pictures_task:TASK", 3) == 1.0


def test_rows_are_told_apart(tasks_of_the_page, tmp_path):
    write_table(tmp_path / "table")
    assert accuracy("table_task:TASK", 10) > 0.8


def test_images_of_the_hub_are_told_apart(tasks_of_the_page, tmp_path):
    """Written as ylecun/mnist is: each class is a bright row."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 80), ("test", 20)):
        pixels = rng.integers(0, 99, (count, 28, 28)).astype(np.uint8)
        for number, image in enumerate(pixels):
            image[number % 10] = 255
        columns = {
            "image": [Image.fromarray(image) for image in pixels],
            "label": [number % 10 for number in range(count)],
        }
        file = tmp_path / "mnist" / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_dict(columns).to_parquet(file)
    keys = {"data-dir": str(tmp_path / "mnist"), "partition": "shards"}
    assert accuracy("hub_task:TASK", 3, **keys) == 1.0


def write_characters(folder):
    """Write a folder as that of flwrlabs/femnist: the 62 kinds are bars, in each writer's grey."""
    rows, rng = [], np.random.default_rng(0)
    for number in range(150):
        writer, kind = number % 3, int(rng.integers(62))
        pixels = np.full((28, 28), 60 * writer, np.uint8)
        pixels[:, kind % 28] = pixels[kind // 28] = 255
        rows.append({
            "image": Image.fromarray(pixels), "writer_id": f"f{writer:04}_00", "hsf_id": 0,
            "character": kind,
        })  # fmt: skip
    features = datasets.Features({
        "image": datasets.Image(), "writer_id": datasets.Value("string"),
        "hsf_id": datasets.Value("int64"),
        "character": datasets.ClassLabel(names=[str(kind) for kind in range(62)]),
    })  # fmt: skip
    table = datasets.Dataset.from_list(rows, features=features)
    table.to_parquet(folder / "data" / "train-00000-of-00001.parquet")
    return rows


def test_characters_of_a_writer_are_one_client_and_a_tenth_of_them_is_for_testing(
    tasks_of_the_page, tmp_path
):
    rows = write_characters(tmp_path / "femnist")
    options = DataOptions(directory=str(tmp_path / "femnist"))
    data = tasks_of_the_page("femnist_task").TASK.dataset(options)
    trained = [number for number in range(150) if number // 3 % 10 != 9]
    images = [np.asarray(rows[number]["image"]) for number in trained]
    np.testing.assert_array_equal(data.train.inputs, images)
    assert data.train.targets.tolist() == [rows[number]["character"] for number in trained]
    assert data.train.owners.tolist() == [number % 3 for number in trained]
    assert data.test.owners.tolist() == [0, 1, 2] * 5
    keys = {"data-dir": str(tmp_path / "femnist"), "partition": "natural", "local-epochs": 1}
    keys |= {"num-clients": 3}
    assert 0 <= accuracy("femnist_task:TASK", 1, **keys) <= 1


def test_clients_of_femnist_are_writers_and_leafs_cnn_trains(tmp_path):
    write_characters(tmp_path / "hub")
    config = make_config(
        task="tasks.femnist:FEMNIST_CNN", data_source="auto", data_dir=str(tmp_path / "hub"),
        partition="natural", num_clients=3, fraction_train=1.0, num_server_rounds=1,
        run_dir=str(tmp_path),
    )  # fmt: skip
    prepared = prepare(config)
    training = [row for row in range(150) if row % 10 != 9]
    assert (len(prepared.data.train), len(prepared.data.test)) == (len(training), 15)
    for writer, client in enumerate(partition(prepared.data, "train", config)):
        assert {training[place] % 3 for place in client} == {writer}
    assert sum(weight.numel() for weight in prepared.task.model().parameters()) == 6_603_710
    (_, trained) = run_here(config).history
    assert (trained.participants, trained.rejected) == (3, {})
    assert trained.test_loss > 0
