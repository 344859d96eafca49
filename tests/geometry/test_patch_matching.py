"""Patches are found again where they were moved to, and nowhere else."""

import numpy as np
import torch

from matchattention.geometry.patch_matching import PATCH, box_mean, match_patches
from tests.geometry.pictures import texture


def grid(height: int, width: int, step: int = 24) -> torch.Tensor:
    y, x = torch.meshgrid(
        torch.arange(PATCH, height - PATCH, step), torch.arange(PATCH, width - PATCH, step), indexing="ij"
    )
    return torch.stack((x.flatten(), y.flatten()), 1)


def test_a_shift_is_found_in_every_direction() -> None:
    large = torch.from_numpy(texture(200, 300, seed=3)).float()
    corners = grid(120, 180)
    for dx, dy in ((-30, 0), (17, 5), (0, -12)):
        first, second = large[40:160, 60:240], large[40 - dy : 160 - dy, 60 - dx : 240 - dx]
        found = match_patches(first, second, corners, (16, 40))
        assert len(found.where) > 0.4 * len(corners)
        right = np.abs(found.offset - (dx, dy)).max(axis=1) < 0.1
        assert right.mean() > 0.8  # the rest moved out of view
        np.testing.assert_allclose(found.ratio[right], 1.0, atol=0.02)


def test_half_a_pixel_is_measured_and_gain_ignored() -> None:
    image = torch.from_numpy(texture(120, 180, seed=4)).float()
    second = (image + image.roll(1, 1)) / 2 * 0.5
    found = match_patches(image, second, grid(120, 180), (8, 20))
    assert len(found.where) > 15
    np.testing.assert_allclose(np.median(found.offset, axis=0), (0.5, 0), atol=0.1)
    assert np.abs(found.ratio - 0.5).max() < 0.05


def test_patches_with_rivals_or_without_texture_are_left_out() -> None:
    tile = torch.from_numpy(texture(120, 30, seed=5)).float()
    assert len(match_patches(tile.repeat(1, 6), tile.repeat(1, 6), grid(120, 180), (8, 60)).where) == 0
    flat = torch.full((120, 180), 90.0)
    assert len(match_patches(flat, flat, grid(120, 180), (8, 60)).where) == 0
    assert match_patches(flat, flat, torch.zeros(0, 2, dtype=torch.long), (8, 60)).offset.shape == (0, 2)


def test_box_mean_is_the_mean() -> None:
    image = torch.rand(9, 11)
    expected = torch.nn.functional.avg_pool2d(image[None, None], 5, 1, 2)[0, 0]
    torch.testing.assert_close(box_mean(image, 5), expected)
