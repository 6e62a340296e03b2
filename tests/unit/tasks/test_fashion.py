import numpy as np
import pytest
import torch
from PIL import Image

from tasks.data.dataset import DataOptions
from tasks.data.mnist import FASHION_MNIST
from tasks.fashion import FASHION_CNN, FASHION_LSTM
from tests.support import data_slices


def test_rows_of_lstm_match_image_resized_by_pillow(tmp_path):
    data_slices.mnist(tmp_path)
    data = FASHION_MNIST.load(DataOptions(directory=str(tmp_path)))
    rows = FASHION_LSTM.prepare(torch.from_numpy(data.train.inputs[:20].copy()))
    assert rows.shape == (20, 32, 32)
    grey = (rows.numpy() * 0.3081 + 0.1307) * 255
    for image, found in zip(data.train.inputs, grey, strict=False):
        reference = Image.fromarray(image).resize((32, 32), Image.Resampling.BILINEAR)
        # Pillow rounds between its two passes, prepare_rows once at the end.
        assert np.abs(found - np.asarray(reference, dtype=np.float64)).max() < 1.01
    assert FASHION_LSTM.model()(rows).shape == (20, 10)


def test_images_of_cnn_are_standardised_by_fashion_mnist_statistics():
    images = torch.tensor([[[0, 255]]], dtype=torch.uint8)
    prepared = FASHION_CNN.prepare(images).ravel().tolist()
    assert prepared == pytest.approx([-0.2860 / 0.3530, (1 - 0.2860) / 0.3530])
