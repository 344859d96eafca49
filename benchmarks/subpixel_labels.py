"""Are rendered labels those of a pixel's centre? Match textured planes again to fractions of a pixel.

    python benchmarks/subpixel_labels.py

Prints, for planes without a sensor, with 16 rays a pixel, with a row error, with the sensor, and for noise that was
shifted exactly (what the measurement itself is off by), the offset to the label in px: mean, median, median size,
and its median by the fraction of the disparity, in eighths.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS

SIZE = (192, 320)
WINDOW = 9  # px
LEAST_TEXTURE = 30.0  # mean squared slope, grey levels per px
PLANES = replace(
    PRESETS["flying"], floating=0.0, floating_count=0, cards=False, wires=False, plants=False, panes=0.0, mirrors=0.0,
    clear=0.0, specular=False, shadows=False, relit=0.0, vertical_error=(0.0, 0.1), plain=0.0, beside=0.0,
    sensor="clean", emission=False,
)  # fmt: skip


def _box(image: Tensor) -> Tensor:
    return F.avg_pool2d(image, WINDOW, 1, WINDOW // 2)


def _slope(image: Tensor) -> Tensor:
    padded = F.pad(image, (1, 1, 0, 0), mode="replicate")
    return (padded[..., 2:] - padded[..., :-2]) / 2


def _prepared(image: Tensor) -> Tensor:
    """Grey, without what changes slowly."""
    grey = image.float().mean(1, keepdim=True)
    return grey - F.avg_pool2d(F.pad(grey, (7, 7, 7, 7), mode="replicate"), 15, 1)


def _smoothed(image: Tensor) -> Tensor:
    line = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
    return F.conv2d(F.pad(image, (2, 2, 2, 2), mode="replicate"), (line[:, None] * line)[None, None])


def _warped(image: Tensor, disparity: Tensor) -> Tensor:
    height, width = image.shape[-2:]
    x = (torch.arange(width) - disparity + 0.5) / width * 2 - 1
    y = ((torch.arange(height) + 0.5) / height * 2 - 1)[:, None].expand_as(disparity)
    return F.grid_sample(image, torch.stack((x, y), -1), "bicubic", "border", False)


def offsets(batch: Batch) -> tuple[Tensor, Tensor]:
    """Offset to the label and disparity, px, where a window is seen by both views, textured, and of one surface."""
    assert batch.occluded0 is not None
    disparity = -batch.field0[..., 0]
    left, back = _smoothed(_prepared(batch.image0)), _smoothed(_warped(_prepared(batch.image1), disparity))
    slope = (_slope(left) + _slope(back)) / 2
    texture = _box(slope * slope)
    offset = _box(slope * (back - left)) / (texture + 1e-3)
    left_over = _box((back - left - slope * offset) ** 2)
    spread = F.max_pool2d(disparity[:, None], WINDOW, 1, 4) + F.max_pool2d(-disparity[:, None], WINDOW, 1, 4)
    seen = _box((batch.valid0 & ~batch.occluded0).float()[:, None]) > 0.999
    usable = seen & (spread < 0.6) & (texture > LEAST_TEXTURE) & (left_over < 0.3 * _box(left * left))
    usable = usable[:, 0] & (offset[:, 0].abs() < 1) & (disparity > 1)
    usable[..., :8] = usable[..., -8:] = False
    return offset[:, 0][usable], disparity[usable]


def shifted_noise(steps: int = 32) -> Batch:
    """Smooth noise shifted by 3 px and a fraction, by its Fourier transform."""
    generator = torch.Generator().manual_seed(0)
    height, width = SIZE
    x, y = torch.fft.fftfreq(width), torch.fft.fftfreq(height)[:, None]
    spectrum = torch.fft.fft2(torch.randn(steps, 3, height, width, generator=generator))
    spectrum = spectrum * torch.exp(-(x**2 + y**2) / (2 * 0.15**2))
    disparity = (3 + torch.arange(steps) / steps).view(-1, 1, 1).expand(steps, height, width)
    turn = torch.exp(2j * torch.pi * x * disparity[:, None, :1, :1])
    left, right = (torch.fft.ifft2(part).real * 60 + 128 for part in (spectrum, spectrum * turn))
    field = torch.stack((-disparity, torch.zeros_like(disparity)), -1)
    known = torch.ones(steps, height, width, dtype=torch.bool)
    return Batch(left, right, field, -field, known, known, ~known, ~known)


def show(name: str, batch: Batch) -> None:
    """One line of figures and one of medians by fraction."""
    offset, disparity = offsets(batch)
    figures = f"mean {offset.mean():+.4f} median {offset.median():+.4f} of size {offset.abs().median():.3f}"
    print(f"{name}: {len(offset)} pixels, {figures} px")
    eighth = ((disparity - disparity.floor()) * 8).long().clamp(max=7)
    print("   " + " ".join(f"{offset[eighth == part].median():+.4f}" for part in range(8)), flush=True)


def main() -> None:
    """All of them."""
    settings = {
        "planes": PLANES,
        "planes, 16 rays a pixel": replace(PLANES, samples=16),
        "planes, rows off by 0.3 px": replace(PLANES, vertical_error=(1.0, 0.3)),
        "planes, default sensor": replace(PLANES, sensor="default"),
    }
    show("shifted noise", shifted_noise())
    for name, config in settings.items():
        show(name, SceneStream(config, SIZE, 8, 3, "cpu").next())


if __name__ == "__main__":
    main()
