import numpy as np
import pytest
import torch

import tasks


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("mnist-2nn", 199_210), ("mnist-cnn", 1_663_370), ("mnist-logistic", 7_850)],
)
def test_parameter_counts_match_the_papers(name, parameters):
    model = tasks.load(name).model()
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, 10)


def test_images_are_scaled_and_standardised():
    images = np.zeros((2, 28, 28), np.uint8)
    images[0, 3, 5] = 255
    prepared = tasks.load("mnist-2nn").prepare(torch.from_numpy(images))
    assert (prepared.shape, prepared.dtype) == ((2, 1, 28, 28), torch.float32)
    assert prepared[0, 0, 3, 5].item() == pytest.approx((1 - 0.1307) / 0.3081)
    assert prepared[1].unique().item() == pytest.approx(-0.1307 / 0.3081)
