"""FEMNIST on a made-up file in the hub's format: nothing is fetched here."""

import datasets
import numpy as np
import pytest

from fedavg_app.partitioning import partition
from fedavg_app.server.preparation import prepare
from tasks.femnist import FEMNIST_CNN
from tests.support.in_process import make_config, run_here

pytestmark = pytest.mark.usefixtures("server_identity")
WRITERS, EACH = 10, 12


@pytest.fixture
def folder(tmp_path):
    """A copy of the hub's folder: 10 writers with 12 characters each."""
    rng = np.random.default_rng(1)
    rows = WRITERS * EACH
    classes = datasets.ClassLabel(num_classes=62)
    features = datasets.Features(
        image=datasets.Image(), writer_id=datasets.Value("string"),
        hsf_id=datasets.Value("int64"), character=classes,
    )  # fmt: skip
    columns = {
        "image": list(rng.integers(0, 256, (rows, 28, 28), np.uint8)),
        "writer_id": [f"f{row // EACH:04}_14" for row in range(rows)],
        "hsf_id": [0] * rows,
        "character": rng.integers(0, 62, rows).tolist(),
    }
    made = datasets.Dataset.from_dict(columns, features)
    made.to_parquet(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    return str(tmp_path / "hub")


def test_clients_are_writers_and_the_cnn_trains(folder, tmp_path):
    config = make_config(
        task="tasks.femnist:FEMNIST_CNN", data_source="auto", data_dir=folder, partition="natural",
        num_clients=WRITERS, fraction_train=0.5, num_server_rounds=1, run_dir=str(tmp_path),
    )  # fmt: skip
    data = prepare(config).data
    training = [row for row in range(WRITERS * EACH) if row % 10 != 9]
    assert (len(data.train), len(data.test)) == (len(training), WRITERS * EACH // 10)
    for writer, client in enumerate(partition(data, "train", config)):
        assert {training[place] // EACH for place in client} == {writer}
    (_, trained) = run_here(config).history
    assert trained.participants == 5
    assert not trained.rejected
    assert trained.test_loss > 0


def test_number_of_weights_is_that_of_leafs_network():
    assert sum(p.numel() for p in FEMNIST_CNN.model().parameters()) == 6_603_710
