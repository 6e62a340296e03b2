"""Devices whose data are folders that `flwr-datasets create` has made."""

import datasets
import numpy as np
import pytest
from PIL import Image

from fedavg_app.config import parse_config
from fedavg_app.server.preparation import prepare
from fedavg_app.server_app import run
from tasks.data.dataset import DataOptions
from tasks.data.mnist import MNIST
from tests.support.local_grid import LocalGrid

NODES, ROWS = 3, 40


def save_rows(folder, split):
    """Write the rows as the library `datasets` saves a partition of ylecun/mnist."""
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)}
    rows = {"image": list(map(Image.fromarray, split.inputs)), "label": split.targets}
    datasets.Dataset.from_dict(rows, features=datasets.Features(features)).save_to_disk(folder)


def save_archive(folder, split):
    folder.mkdir()
    np.savez(folder / "train.npz", inputs=split.inputs, targets=split.targets)


def trained(tmp_path, save):
    """Return the model of three devices, each with its own rows in the format of ``save``."""
    config = parse_config(
        {
            "task": "mnist-logistic", "data-source": "embedded", "num-clients": NODES,
            "fraction-train": 1.0, "num-server-rounds": 2, "run-dir": str(tmp_path / "runs"),
        }
    )  # fmt: skip
    tmp_path.mkdir()
    data = MNIST.load(DataOptions("embedded")).train
    grid = LocalGrid(config.model_dump(by_alias=True), NODES)
    for number, context in enumerate(grid.contexts.values()):
        folder = tmp_path / f"partition_{number}"
        rows = slice(number, None, len(data) // (ROWS + number))
        save(folder, type(data)(data.inputs[rows], data.targets[rows]))
        context.node_config["data-dir"] = str(folder)
    result = run(grid, prepare(config))
    assert not any(metrics.rejected for metrics in result.history)
    return result


def test_saved_partitions_train_the_model_of_the_same_rows_in_archives(tmp_path):
    saved, archived = (
        trained(tmp_path / save.__name__, save) for save in (save_rows, save_archive)
    )
    for name, array in archived.model.items():
        np.testing.assert_array_equal(saved.model[name].numpy(), array.numpy())
    assert saved.history[-1].accuracy > saved.history[0].accuracy
    assert saved.history[-1].train_loss == pytest.approx(archived.history[-1].train_loss)
