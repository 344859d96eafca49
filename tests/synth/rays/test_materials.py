"""Textures: filtered instead of sampled, bounded, the same from everywhere."""

import pytest
import torch

from matchattention.synth.rays import materials, noise
from matchattention.synth.rays.dialect import as_torch
from matchattention.synth.rays.tables import photo_pyramid

fractal = as_torch(noise.fractal)
value_noise = as_torch(noise.value_noise)
square_wave = as_torch(materials.square_wave)
photo_colour = as_torch(materials.photo_colour)
weights = as_torch(materials.weights)


def points(count=20000, scale=40.0):
    return torch.rand(3, count, generator=torch.Generator().manual_seed(2)) * scale - scale / 2


def test_noise_is_centred_bounded_and_continuous():
    x, y, z = points()
    n = value_noise(x, y, z)
    assert n.abs().max() <= 1
    assert n.mean().abs() < 0.03
    assert n.std() > 0.2
    assert (value_noise(x + 1e-3, y, z) - n).abs().max() < 0.01
    corner = torch.floor(x)
    below, above = (value_noise(corner + e, y, z) for e in (-1e-4, 1e-4))
    assert (below - above).abs().max() < 1e-3


def test_coarse_octaves_fade_with_the_footprint():
    x, y, z = points()
    gain = torch.full_like(x, 0.6)
    deviations = [fractal(x, y, z, torch.full_like(x, footprint), gain)[0].std() for footprint in (0.01, 0.2, 0.5, 2.0)]
    assert deviations == sorted(deviations, reverse=True)
    assert deviations[-1] == 0


def test_grain_is_as_fine_as_pixels_at_every_distance():
    """Seen ten times nearer, grain looks alike; between two footprints that differ little, it differs little."""
    start = points(2000)
    gain = torch.full_like(start[0], 0.6)
    for footprint in (0.003, 0.03, 0.3, 3.0):
        size = torch.full_like(start[0], footprint)
        x, y, z = start * footprint * 3
        grain = fractal(x, y, z, size, gain)[1]
        assert 0.15 < grain.std() < 0.4
        along = torch.stack([fractal(x + k * footprint, y, z, size, gain)[1] for k in (1, 8)])
        correlation = [torch.corrcoef(torch.stack((grain, a)))[0, 1].item() for a in along]
        assert correlation[0] > 0.5
        assert correlation[1] < 0.5
        assert (fractal(x, y, z, size * 1.01, gain)[1] - grain).abs().max() < 0.05


@pytest.mark.parametrize("duty", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("footprint", [0.0, 0.05, 0.2, 0.5, 2.0])
def test_filtered_bars_keep_their_mean(duty, footprint):
    u = torch.linspace(-3, 3, 6001)
    bars = square_wave(u, duty, torch.full_like(u, footprint))
    assert bars.min() >= 0
    assert bars.max() <= 1
    assert abs(bars[:-1].mean().item() - duty) < 0.06
    if footprint >= 2:
        assert (bars - duty).abs().max() < 1e-6


@pytest.mark.parametrize("pattern", range(len(materials.PATTERNS)), ids=materials.PATTERNS)
def test_patterns_mix_colours_within_bounds(pattern):
    x, y, z = points(4000)
    kind = torch.full_like(x, pattern, dtype=torch.int32)
    coarse, _ = fractal(x, y, z, 0.0 * x + 0.01, 0.0 * x + 0.5)
    half = torch.full_like(x, 0.5)
    second, third = weights(kind, x, y, z, x, y, coarse, 0.0 * x + 0.01, half, 1.0 + 0.0 * x, 0.0 * x + 3.0)
    for share in (second, third):
        assert share.min() >= 0
        assert share.max() <= 1
    if materials.PATTERNS[pattern] != "photo":
        assert second.std() + third.std() > 0.05


def test_photo_texels_are_exact_and_mirrored():
    bank = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    photos = photo_pyramid(bank, torch.device("cpu"))
    assert (photos.levels, photos.amount, photos.size) == (2, 2, 8)
    j, i = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    layer = torch.ones(64, dtype=torch.int32)
    zero = torch.zeros(64)
    for turn in (0.0, 2.0, -2.0):
        u, v = (i.flatten() + 0.5) / 8 + turn, (j.flatten() + 0.5) / 8
        colour = photo_colour(photos.texels, photos.starts, layer, u, v, zero, 8, 2)
        for channel in range(3):
            wanted = (bank[1, channel].flatten().float() / 255 + 1e-4) ** 2.2
            assert torch.allclose(colour[channel], wanted, rtol=1e-4, atol=1e-6)
    left, right = (photo_colour(photos.texels, photos.starts, layer, 1.0 + s * (i.flatten() + 0.5) / 8, v, zero, 8, 2)
                   for s in (-1, 1))  # fmt: skip
    assert torch.allclose(torch.stack(left), torch.stack(right), atol=1e-6)


def test_distant_photos_show_their_mean():
    bank = torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    photos = photo_pyramid(bank, torch.device("cpu"))
    u = torch.rand(500, generator=torch.Generator().manual_seed(4))
    layer = torch.zeros(500, dtype=torch.int32)
    far = torch.stack(photo_colour(photos.texels, photos.starts, layer, u, u.flip(0), 0 * u + 50.0, 16, photos.levels))
    near = torch.stack(photo_colour(photos.texels, photos.starts, layer, u, u.flip(0), 0 * u, 16, photos.levels))
    mean = ((bank[0].float() / 255) ** 2.2).mean((1, 2))
    assert ((far.mean(1) - mean).abs() < 0.05).all()
    assert (far.std(1) < 0.5 * near.std(1)).all()
