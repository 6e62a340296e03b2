from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from tasks.data.mnist import FASHION_MNIST
from tasks.data.store import DataError, DataOptions
from tasks.fashion import FASHION_CNN, FASHION_LSTM
from tests import slices


@pytest.fixture
def folder(tmp_path):
    slices.fashion_mnist(tmp_path)
    return tmp_path


def test_the_numbers_of_parameters():
    for task, expected in ((FASHION_LSTM, 216_330), (FASHION_CNN, 1_663_370)):
        assert sum(p.numel() for p in task.initial_model(1).parameters()) == expected


def test_rows_are_the_resized_image(folder):
    data = FASHION_MNIST.load(DataOptions(directory=str(folder)))
    rows = FASHION_LSTM.prepare(torch.from_numpy(data.train.inputs[:20].copy()))
    assert rows.shape == (20, 32, 32)
    grey = (rows.numpy() * 0.3081 + 0.1307) * 255
    for image, found in zip(data.train.inputs, grey, strict=False):
        reference = Image.fromarray(image).resize((32, 32), Image.Resampling.BILINEAR)
        # The library rounds between its two passes, this once at the end.
        assert np.abs(found - np.asarray(reference, dtype=np.float64)).max() < 1.01
    assert FASHION_LSTM.model()(rows).shape == (20, 10)


def test_the_system_package_is_taken_before_any_network(folder):
    unserved = replace(FASHION_MNIST, mirrors=("http://127.0.0.1:9/",))
    packaged = replace(unserved, package=(folder, "dataset-fashion-mnist"))
    data = packaged.load(DataOptions("auto"))
    assert data.options == DataOptions(directory=str(folder))  # clients load the same
    assert packaged.load(data.options).fingerprint == data.fingerprint
    absent = replace(unserved, package=(folder / "none", "dataset-fashion-mnist"))
    with pytest.raises(DataError, match="install the Debian package dataset-fashion-mnist") as got:
        absent.load(DataOptions("auto"))
    assert "no mirror gave Fashion-MNIST" in str(got.value)
    assert "data-dir" in str(got.value)


@pytest.mark.skipif(not FASHION_MNIST.package[0].is_dir(), reason="needs dataset-fashion-mnist")
def test_the_whole_data_set():
    data = FASHION_MNIST.load(DataOptions("auto"))
    assert np.bincount(data.train.targets).tolist() == [6000] * 10
    assert np.bincount(data.test.targets).tolist() == [1000] * 10
    assert data.train.inputs.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
