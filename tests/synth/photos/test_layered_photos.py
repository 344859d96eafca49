"""Photos cut into layers: both views exact, labels consistent, samples independent of their batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from matchattention.errors import InputError
from matchattention.synth.dice import Dice
from matchattention.synth.photos import photo_bank
from matchattention.synth.photos.layered_photos import LayeredPhotoConfig, LayeredPhotoStream, _draw_planes
from matchattention.synth.sensor.config import SensorConfig

SIZE = (64, 96)
CLEAN = replace(LayeredPhotoConfig(), sensor=replace(SensorConfig(), eight_bit=False))


@pytest.fixture(scope="module")
def bank() -> torch.Tensor:
    """Smooth coloured blobs with edges: enough structure to be cut."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand((6, 3, 9, 9), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(64, 64), mode="bicubic").clamp(0, 1)
    smooth = smooth + 0.3 * (smooth.mean(1, keepdim=True) > 0.5)
    return (smooth.clamp(0, 1) * 255).byte()


def stream(bank: torch.Tensor, batch: int = 4, index: int = 0, config: LayeredPhotoConfig = CLEAN, seed: int = 3):
    return LayeredPhotoStream(bank, SIZE, batch, seed, "cpu", index, config)


def test_shapes_ranges_and_signs(bank: torch.Tensor):
    batch = stream(bank, config=LayeredPhotoConfig()).next()
    assert batch.image0.shape == batch.image1.shape == (4, 3, *SIZE)
    assert batch.field0.shape == batch.field1.shape == (4, *SIZE, 2)
    assert batch.image0.min() >= 0
    assert batch.image0.max() <= 255
    assert batch.valid0.float().mean() > 0.99
    assert (batch.field0[..., 0][batch.valid0] < 0).all()
    assert (batch.field1[..., 0][batch.valid1] > 0).all()
    assert (batch.field0[..., 1] == 0).all()
    assert all(part.isfinite().all() for part in batch[:4])


def sampled(values: torch.Tensor, field: torch.Tensor) -> torch.Tensor:
    """Linear interpolation of (B, C, H, W) along rows at x + field's x."""
    width = values.shape[-1]
    place = (torch.arange(width) + field[..., 0]).clamp(0, width - 1)[:, None]
    low = place.floor().clamp(max=width - 2)
    weight = place - low
    channels = values.shape[1]
    left, right = (torch.gather(values, 3, (low + step).long().expand(-1, channels, -1, -1)) for step in (0, 1))
    return torch.lerp(left, right, weight)


def inner(batch, view: int) -> torch.Tensor:
    """Visible pixels whose neighbourhood is visible too and lies on one surface, in both views."""
    field, other = (batch.field0, batch.field1) if view == 0 else (batch.field1, batch.field0)
    occluded = batch.occluded0 if view == 0 else batch.occluded1
    jump = torch.zeros_like(occluded)
    jump[..., 1:] |= field[..., 0].diff(dim=2).abs() > 0.6
    jump[..., :-1] |= field[..., 0].diff(dim=2).abs() > 0.6
    seam = torch.zeros_like(occluded)
    seam[..., 1:] |= other[..., 0].diff(dim=2).abs() > 0.6
    seam[..., :-1] |= other[..., 0].diff(dim=2).abs() > 0.6
    at_match = sampled(seam[:, None].float(), field)[:, 0]
    return ~occluded & ~jump & (at_match == 0)


@pytest.mark.parametrize("view", [0, 1])
def test_left_and_right_agree(bank: torch.Tensor, view: int):
    batch = stream(bank, 8).next()
    field, other = (batch.field0, batch.field1) if view == 0 else (batch.field1, batch.field0)
    back = sampled(other[..., 0][:, None], field)[:, 0]
    error = (back + field[..., 0]).abs()[inner(batch, view)]
    assert error.numel() > 10_000
    assert error.quantile(0.95) < 1e-4  # the rest straddles two layers that meet almost at one depth
    assert error.max() < 0.7


def test_warping_the_right_view_gives_the_left_one(bank: torch.Tensor):
    batch = stream(bank, 8).next()
    error = (sampled(batch.image1, batch.field0) - batch.image0).abs().mean(1)[inner(batch, 0)]
    wrong = (sampled(batch.image1, 0.8 * batch.field0) - batch.image0).abs().mean(1)[inner(batch, 0)]
    assert error.median() < 1.0
    assert error.mean() < 0.25 * wrong.mean()


def test_occlusion_means_hidden_or_outside(bank: torch.Tensor):
    batch = stream(bank, 8).next()
    disparity = -batch.field0[..., 0]
    match = torch.arange(SIZE[1]) - disparity
    outside = match < -0.5
    assert batch.occluded0[outside].all()
    # What hides a pixel is nearer: its disparity in the other view, at the same place, is larger.
    hidden = batch.occluded0 & ~outside
    column = match.round().long().clamp(0, SIZE[1] - 1)
    cover = torch.gather(batch.field1[..., 0], 2, column)
    assert hidden.any()
    assert (cover[hidden] > disparity[hidden] - 0.3).float().mean() > 0.97


def test_a_sample_does_not_depend_on_its_batch(bank: torch.Tensor):
    config = LayeredPhotoConfig()
    many = stream(bank, 4, config=config).next()
    one = stream(bank, 1, index=2, config=config).next()
    torch.testing.assert_close(one.field0[0], many.field0[2], atol=1e-3, rtol=1e-4)
    assert (one.image0[0] - many.image0[2]).abs().mean() < 0.1
    assert (many.image0[0] - many.image0[1]).abs().mean() > 1


def test_state_resumes(bank: torch.Tensor):
    source = stream(bank, 2)
    source.next()
    assert source.state == 2
    torch.testing.assert_close(next(iter(source)).image1, stream(bank, 2, index=2).next().image1)


def test_batches_beyond_what_is_cast_at_once(bank: torch.Tensor):
    source = LayeredPhotoStream(bank, (32, 32), 18, 0, "cpu", config=CLEAN)
    batch = source.next()
    assert batch.image0.shape[0] == batch.occluded1.shape[0] == 18


def test_bank_may_be_a_file_and_must_exist(bank: torch.Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    photo_bank.save(bank, tmp_path / "bank.safetensors", 95)
    from_file = LayeredPhotoStream(tmp_path / "bank.safetensors", SIZE, 1, 0, "cpu").next()
    assert from_file.image0.shape == (1, 3, *SIZE)
    monkeypatch.setattr(photo_bank, "DEFAULT_PATH", tmp_path / "none")
    monkeypatch.delenv(photo_bank.ENVIRONMENT, raising=False)
    with pytest.raises(InputError, match="no photo bank"):
        LayeredPhotoStream(None, SIZE, 1, 0, "cpu")
    with pytest.raises(InputError, match="at least"):
        LayeredPhotoStream(bank, (8, 8), 1, 0, "cpu")


def test_floating_pieces_are_no_nearer_than_the_largest_disparity():
    config = replace(CLEAN, disparity=(0.2, 0.2), slant=0.0)
    planes = _draw_planes(Dice(1, range(8), "cpu"), config, torch.zeros(8, 3, *SIZE, dtype=torch.long), SIZE)
    pieces = planes[:, -config.near_cells[0] * config.near_cells[1] :, 0]
    shown = pieces[pieces > 0]
    assert shown.numel() > 4
    assert 0.7 * 0.2 * SIZE[1] < shown.max() <= 0.2 * SIZE[1]
