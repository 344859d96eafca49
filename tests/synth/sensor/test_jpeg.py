"""Our JPEG loss against a real encoder, and its limits."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from matchattention.synth.sensor.jpeg import compress


def picture(height: int = 64, width: int = 96) -> torch.Tensor:
    """(1, 3, H, W) smooth colours with an edge and some grain, whole levels."""
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    image = torch.stack([x, y, (x + y) / 2]) * 160 + 40
    image[:, :, width // 2 :] *= 0.6
    grain = torch.rand(image.shape, generator=torch.Generator().manual_seed(1)) * 12
    return (image + grain).round()[None]


@pytest.mark.parametrize("quality", [30, 60, 90])
def test_agrees_with_pillow(quality: int):
    image_module = pytest.importorskip("PIL.Image")
    image = picture()
    buffer = io.BytesIO()
    array = image[0].permute(1, 2, 0).byte().numpy()
    image_module.fromarray(array).save(buffer, "JPEG", quality=quality, subsampling=2)
    stored = torch.from_numpy(np.array(image_module.open(buffer))).permute(2, 0, 1)[None].float()
    ours = compress(image, torch.tensor([float(quality)]))
    # Rounding inside libjpeg and its chroma enlargement differ a little; the loss itself is far larger.
    assert (ours - stored).abs().mean() < 1.0
    assert (ours - stored).abs().mean() < 0.35 * (stored - image).abs().mean()


def test_loss_grows_as_quality_falls():
    image = picture().expand(4, -1, -1, -1)
    error = (compress(image, torch.tensor([98.0, 80.0, 50.0, 10.0])) - image).abs().mean((1, 2, 3))
    assert (error.diff() > 0).all()
    assert error[0] < 3.5


def test_flat_greys_survive_and_odd_sizes_work():
    flat = torch.full((2, 3, 37, 51), 128.0)
    torch.testing.assert_close(compress(flat, torch.tensor([90.0, 50.0])), flat, atol=0.51, rtol=0)
    assert compress(picture(37, 51), torch.tensor([5.0])).shape == (1, 3, 37, 51)
