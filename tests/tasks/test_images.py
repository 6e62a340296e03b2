import numpy as np
import pytest
import torch

from tasks.images import brighten_each, contrast_each, crop_each, flip_each, whiten_each

# Every pixel says where it is and of which image and channel.
IMAGES = torch.arange(40 * 3 * 8 * 8).reshape(40, 3, 8, 8)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def test_each_image_is_cropped_at_a_place_of_its_own():
    cropped = crop_each(IMAGES, 5)
    assert cropped.shape == (40, 3, 5, 5)
    places = set()
    for image, part in zip(IMAGES, cropped, strict=True):
        top, left = (int(i[0]) for i in torch.nonzero(image[0] == part[0, 0, 0], as_tuple=True))
        assert torch.equal(part, image[:, top : top + 5, left : left + 5])
        places.add((top, left))
    assert len(places) > 8
    assert {top for top, _ in places} == {left for _, left in places} == {0, 1, 2, 3}


def test_padding_lets_the_square_reach_over_the_edge():
    ones = torch.ones(200, 1, 8, 8, dtype=torch.uint8)
    cropped = crop_each(ones, 8, padding=2)
    assert cropped.dtype == torch.uint8
    # What is not padding is a rectangle of 6 to 8 by 6 to 8.
    heights = {int(part[0].amax(dim=1).sum()) for part in cropped}
    assert heights == {6, 7, 8}


def test_about_half_of_the_images_are_mirrored():
    images = torch.rand(1000, 1, 2, 3)
    flipped = flip_each(images)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(dim=1)
    assert torch.equal(flipped[~mirrored], images[~mirrored])
    assert 430 < int(mirrored.sum()) < 570


def test_brightness_moves_all_pixels_of_an_image_alike():
    images = torch.rand(500, 3, 4, 4)
    moved = (brighten_each(images, 63) - images).flatten(1)
    assert (moved - moved[:, :1]).abs().max() < 1e-4
    shifts = moved[:, 0]
    assert -63 <= shifts.min() < -55
    assert 55 < shifts.max() <= 63


def test_contrast_scales_the_distance_from_each_channels_mean():
    images = torch.rand(500, 3, 4, 4, dtype=torch.float64)
    changed = contrast_each(images, 0.2, 1.8)
    means = images.mean(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(changed.mean(dim=(2, 3), keepdim=True), means)
    factors = ((changed - means) / (images - means)).flatten(1)
    assert (factors - factors[:, :1]).abs().max() < 1e-9
    assert 0.2 <= factors.min() < 0.25
    assert 1.75 < factors.max() <= 1.8


def test_whitening_is_tensorflows_formula():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 3, 6, 6)).astype(np.float64)
    pixels[3] = 7  # no contrast at all: divided by 1 / sqrt(m), not by zero
    found = whiten_each(torch.from_numpy(pixels)).numpy()
    for image, white in zip(pixels, found, strict=True):
        deviation = max(image.std(), 1 / np.sqrt(image.size))
        np.testing.assert_allclose(white, (image - image.mean()) / deviation, atol=1e-12)
    assert np.all(found[3] == 0)
