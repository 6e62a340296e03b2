"""The tasks by name: their sizes, and how each prepares its examples."""

import numpy as np
import pytest
import torch
from PIL import Image

import tasks
from tasks.data.dataset import DataOptions
from tasks.data.mnist import FASHION_MNIST
from tasks.mnist import FASHION_CNN, FASHION_LSTM
from tasks.yelp import YELP_STARS
from tests.support import data_slices

# The 866,578 of the paper's LSTM have peepholes (3 * 256 a layer) where torch has second bias
# vectors (4 * 256 a layer).
PARAMETERS = {
    "cifar10-cnn": 1_068_298, "cifar10-vgg11": 865_482, "fashion-cnn": 1_663_370,
    "fashion-lstm": 216_330, "mnist-2nn": 199_210, "mnist-cnn": 1_663_370, "mnist-logistic": 7_850,
    "shakespeare-lstm": 866_578 - 2 * 768 + 2 * 1024, "yelp-stars": 640_325,
}  # fmt: skip


@pytest.mark.parametrize("name", tasks.names())
def test_each_built_in_task_has_the_documented_number_of_parameters_and_no_buffers(name):
    task = tasks.load(name)
    model = task.model()
    assert (task.name, sum(p.numel() for p in model.parameters())) == (name, PARAMETERS[name])
    assert sum(array.numel() for array in model.state_dict().values()) == PARAMETERS[name]


def test_images_are_scaled_and_standardised():
    images = np.zeros((2, 28, 28), np.uint8)
    images[0, 3, 5] = 255
    prepared = tasks.load("mnist-2nn").prepare(torch.from_numpy(images))
    assert (prepared.shape, prepared.dtype) == ((2, 1, 28, 28), torch.float32)
    assert prepared[0, 0, 3, 5].item() == pytest.approx((1 - 0.1307) / 0.3081)
    assert prepared[1].unique().item() == pytest.approx(-0.1307 / 0.3081)


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


def test_model_is_linear_in_mean_of_word_vectors():
    model = YELP_STARS.initial_model(1)
    words = torch.zeros(2, 256, dtype=torch.int16)
    words[0, :3] = torch.tensor([5, 9, 5])
    logits = model(YELP_STARS.prepare(words))
    vectors = model.words.weight
    expected = model.output((2 * vectors[5] + vectors[9]) / 3)
    torch.testing.assert_close(logits[0], expected)
    torch.testing.assert_close(logits[1], model.output.bias)  # a review without words
