import numpy as np
import pytest
import torch

from tasks.cifar import CIFAR10_CNN, CIFAR10_VGG
from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataOptions
from tasks.training.examples import Examples
from tests.support import data_slices

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def data(tmp_path):
    data_slices.cifar10(tmp_path, images=7)
    return CIFAR10.load(DataOptions(directory=str(tmp_path)))


@pytest.mark.parametrize("task", [CIFAR10_CNN, CIFAR10_VGG])
def test_training_examples_are_augmented_on_each_use_and_test_examples_are_not(data, task):
    train = Examples.stored(task, data.train, torch.device("cpu"), training=True)
    test = Examples.stored(task, data.test, torch.device("cpu"))
    side = 24 if task is CIFAR10_CNN else 32
    first, second = train.slice(0, 35)[0], train.slice(0, 35)[0]
    assert first.shape == (35, 3, side, side)
    assert not torch.equal(first, second)
    assert torch.equal(test.slice(0, 7)[0], test.slice(0, 7)[0])
    assert task.model()(first).shape == (35, 10)


def test_test_image_of_cnn_is_standardized_centre(data):
    inputs = CIFAR10_CNN.prepare(torch.from_numpy(data.test.inputs[:2].copy()))
    centre = data.test.inputs[:2, :, 4:28, 4:28].astype(np.float64)
    for image, prepared in zip(centre, inputs.numpy(), strict=True):
        np.testing.assert_allclose(prepared, (image - image.mean()) / image.std(), atol=1e-5)
