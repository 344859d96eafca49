"""The fused kernels do what the sensor's torch functions do (in Triton's interpreter where there is no GPU)."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from matchattention.synth.sensor import kernels, pipeline
from matchattention.synth.sensor.config import PRESETS, Ingredient, SensorConfig

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHOT, READ = pipeline.SHOT_VARIANCE, pipeline.READ_DEVIATION


def views(pairs: int = 3, size: tuple[int, int] = (21, 34)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    images = 1.2 * torch.rand((2 * pairs, 3, *size), generator=generator)
    return images[:pairs].to(DEVICE), images[pairs:].to(DEVICE)


def both_ways(config: SensorConfig, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Both views of the same draws, plain and fused, (2 B, 3, H, W) each."""
    left, right = views()
    monkeypatch.setattr(pipeline, "FUSED_DEVICES", ())
    plain = torch.cat(pipeline.apply(left, right, config, 5))
    monkeypatch.setattr(pipeline, "FUSED_DEVICES", (DEVICE,))
    fused = torch.cat(pipeline.apply(left, right, config, 5))
    return plain, fused


CASES = {
    "clean": SensorConfig(eight_bit=False),
    "mosaic": SensorConfig(mosaic=Ingredient(0.6, 0.5, 1.0), eight_bit=False),
    "colours": SensorConfig(
        colour_saturation=Ingredient(1.0, -0.5, 0.5), greyscale=Ingredient(0.3, 1, 1),
        near_infrared=Ingredient(0.3, 1, 1), mosaic=Ingredient(1.0, 1.0, 1.0), eight_bit=False,
    ),
    "tone": SensorConfig(
        shoulder=Ingredient(0.7, 0, 2), gamma=Ingredient(1.0, -0.5, 0.5), contrast=Ingredient(1.0, -0.5, 1.0),
        black_level=Ingredient(1.0, -0.1, 0.1), eight_bit=False,
    ),
    "sharpening": SensorConfig(sharpening=Ingredient(0.6, 0.5, 1.5), eight_bit=False),
    "default without noise": PRESETS["default"].without("noise", "jpeg"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_fused_equals_plain(name: str, monkeypatch: pytest.MonkeyPatch):
    plain, fused = both_ways(CASES[name], monkeypatch)
    assert plain.std() > 10
    # exp2(log2) against pow; whole levels may round the other way.
    torch.testing.assert_close(fused, plain, atol=1.0 if CASES[name].eight_bit else 2e-2, rtol=0)


@pytest.mark.parametrize("iso", [1.0, 16.0])
def test_noise_has_the_right_variance_and_repeats(iso: float):
    images = torch.full((2, 3, 64, 64), 0.25, device=DEVICE)
    strength = torch.tensor([iso, 0.0], device=DEVICE)
    seeds = torch.tensor([2**61 + 5, 7], device=DEVICE)
    noisy = kernels.expose(images.clone(), strength, seeds, SHOT, READ)
    expected = iso * SHOT * 0.25 + (iso * READ) ** 2
    assert noisy[0].var().item() == pytest.approx(expected, rel=0.06)  # 12 288 samples: deviation 1.3 %
    assert noisy[0].mean().item() == pytest.approx(0.25, abs=4 * (expected / 12288) ** 0.5)
    assert torch.equal(noisy[1], images[1])
    assert torch.equal(noisy, kernels.expose(images.clone(), strength, seeds, SHOT, READ))
    other = kernels.expose(images.clone(), strength, seeds + 1, SHOT, READ)
    together = torch.stack([noisy[0].flatten(), other[0].flatten()])
    assert torch.corrcoef(together)[0, 1].abs() < 0.05
    neighbours = torch.stack([noisy[0].flatten()[:-1], noisy[0].flatten()[1:]])
    assert torch.corrcoef(neighbours)[0, 1].abs() < 0.05


def test_noise_of_a_pair_depends_on_its_seed_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "FUSED_DEVICES", (DEVICE,))
    left, right = views()
    config = SensorConfig(noise=Ingredient(1.0, 8.0, 8.0), eight_bit=False)
    together = pipeline.apply(left, right, config, [1, 2, 3])
    alone = pipeline.apply(left[1:2], right[1:2], config, [2])
    for batch, single in zip(together, alone):
        torch.testing.assert_close(batch[1:2], single, atol=1e-3, rtol=0)
    assert not torch.equal(together[0][0] - together[0][1], torch.zeros_like(together[0][0]))
