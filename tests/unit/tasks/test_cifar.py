import numpy as np
import pytest
import torch
from torch import nn

from tasks import cifar
from tasks.data.cifar import CIFAR10
from tasks.data.dataset import DataOptions
from tests.support import data_slices

# All pixel values differ, so a value tells the image, the channel and the position.
IMAGES = torch.arange(40 * 3 * 8 * 8).reshape(40, 3, 8, 8)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_each_image_is_cropped_at_its_own_random_location():
    cropped = cifar.random_crop(IMAGES, 5)
    assert cropped.shape == (40, 3, 5, 5)
    locations = set()
    for image, part in zip(IMAGES, cropped, strict=True):
        top, left = (int(i[0]) for i in torch.nonzero(image[0] == part[0, 0, 0], as_tuple=True))
        assert torch.equal(part, image[:, top : top + 5, left : left + 5])
        locations.add((top, left))
    assert len(locations) > 8
    assert {top for top, _ in locations} == {left for _, left in locations} == {0, 1, 2, 3}


def test_padded_crop_reaches_beyond_the_edge_by_at_most_the_padding():
    ones = torch.ones(200, 1, 8, 8, dtype=torch.uint8)
    cropped = cifar.random_crop(ones, 8, padding=2)
    assert cropped.dtype == torch.uint8
    # Without the padding, 6 to 8 rows of the image are left.
    heights = {int(part[0].amax(dim=1).sum()) for part in cropped}
    assert heights == {6, 7, 8}


def test_about_half_of_images_are_flipped_and_others_unchanged():
    images = torch.rand(1000, 1, 2, 3)
    flipped = cifar.random_horizontal_flip(images)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(dim=1)
    assert torch.equal(flipped[~mirrored], images[~mirrored])
    assert 430 < int(mirrored.sum()) < 570


def test_brightness_adds_one_random_number_to_all_pixels_of_an_image():
    images = torch.rand(500, 3, 4, 4)
    moved = (cifar.random_brightness(images, 63) - images).flatten(1)
    assert (moved - moved[:, :1]).abs().max() < 1e-4
    shifts = moved[:, 0]
    assert -63 <= shifts.min() < -55
    assert 55 < shifts.max() <= 63


def test_contrast_scales_distance_from_each_channel_mean_by_one_factor_per_image():
    images = torch.rand(500, 3, 4, 4, dtype=torch.float64)
    changed = cifar.random_contrast(images, 0.2, 1.8)
    means = images.mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(changed.mean(dim=(2, 3), keepdim=True), means)
    factors = ((changed - means) / (images - means)).flatten(1)
    assert (factors - factors[:, :1]).abs().max() < 1e-9
    assert 0.2 <= factors.min() < 0.25
    assert 1.75 < factors.max() <= 1.8


def test_standardization_follows_formula_of_tensorflow():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 6, 6)).astype(np.float64)
    pixels[3] = 7  # no contrast: divided by 1 / sqrt(m), not by zero
    found = cifar.per_image_standardization(torch.from_numpy(pixels)).numpy()
    for image, standardized in zip(pixels, found, strict=True):
        deviation = max(image.std(), 1 / np.sqrt(image.size))
        np.testing.assert_allclose(standardized, (image - image.mean()) / deviation, atol=1e-12)
    assert np.all(found[3] == 0)


def activations(scale, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * scale


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("scale", [0.1, 30.0])
def test_values_and_gradients_equal_those_of_torch(scale, layout):
    inputs = activations(scale, 4, 64, 5, 5).contiguous(memory_format=layout).requires_grad_()
    arriving = activations(1.0, 4, 64, 5, 5)
    found = []
    for module in (cifar.LocalResponseNorm(64), nn.LocalResponseNorm(9, alpha=0.001, k=1.0)):
        outputs = module(inputs)
        found.append((outputs.detach(), *torch.autograd.grad(outputs, inputs, arriving)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.fixture
def data(tmp_path, cache):
    data_slices.cifar10(tmp_path, images=7)
    return CIFAR10.load(DataOptions(directory=str(tmp_path)))


@pytest.mark.parametrize("task", [cifar.CIFAR10_CNN, cifar.CIFAR10_VGG])
def test_training_examples_are_augmented_on_each_use_and_test_examples_are_not(data, task):
    train = task.examples(data.train, torch.device("cpu"), training=True)
    test = task.examples(data.test, torch.device("cpu"))
    side = 24 if task is cifar.CIFAR10_CNN else 32
    first, second = train.slice(0, 35)[0], train.slice(0, 35)[0]
    assert first.shape == (35, 3, side, side)
    assert not torch.equal(first, second)
    assert torch.equal(test.slice(0, 7)[0], test.slice(0, 7)[0])
    assert task.model()(first).shape == (35, 10)


def test_test_image_of_cnn_is_standardized_centre(data):
    inputs = cifar.CIFAR10_CNN.prepare(torch.from_numpy(data.test.inputs[:2].copy()))
    centre = data.test.inputs[:2, :, 4:28, 4:28].astype(np.float64)
    for image, prepared in zip(centre, inputs.numpy(), strict=True):
        np.testing.assert_allclose(prepared, (image - image.mean()) / image.std(), atol=1e-5)
