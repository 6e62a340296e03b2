import numpy as np
import pytest
import torch

import tasks


def test_images_are_scaled_and_standardised():
    images = np.zeros((2, 28, 28), np.uint8)
    images[0, 3, 5] = 255
    prepared = tasks.load("mnist-2nn").prepare(torch.from_numpy(images))
    assert (prepared.shape, prepared.dtype) == ((2, 1, 28, 28), torch.float32)
    assert prepared[0, 0, 3, 5].item() == pytest.approx((1 - 0.1307) / 0.3081)
    assert prepared[1].unique().item() == pytest.approx(-0.1307 / 0.3081)
