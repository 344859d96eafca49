"""From the light a scene sends to the numbers a camera stores, for both views of a batch at once.

Every sample draws its own camera. No shape depends on a drawn value and nothing waits for the device, so that
the whole function can be captured in a CUDA graph: call it once before capturing, which fills the caches of
constants, and register the generator with the graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.errors import InputError
from matchattention.synth.rays.dialect import HAS_TRITON
from matchattention.synth.sensor import jpeg, kernels
from matchattention.synth.sensor.config import INGREDIENTS, Ingredient, SensorConfig
from matchattention.synth.sensor.optics import (
    BLOB_DRAWS,
    GLARE_DRAWS,
    LIGHT_CELLS,
    blobs,
    enlarge,
    glare,
    line_taps,
    smooth_gain,
    spread,
)

__all__ = ["Ingredient", "SensorConfig", "apply"]

DISPLAY_EXPONENT = 1 / 2.2
MIDDLE_GREY = 0.2  # linear mean of a well exposed picture
SHOT_VARIANCE = 1e-4  # of white at ISO 100: a full well of 10 000 electrons
READ_DEVIATION = 6e-4  # of white at ISO 100
GAINS = ("exposure", "auto_exposure", "white_balance")
FIELDS = ("vignetting", "uneven_light", "dust", "smudge", "glare")
FUSED_DEVICES = ("cuda",) if HAS_TRITON else ()  # where kernels take the place of many torch operations
LUMA = (0.2126, 0.7152, 0.0722)
KNOTS = LIGHT_CELLS[0] * LIGHT_CELLS[1]
# Uniform numbers a pair needs beside its strengths: white balance 2, streak axis 1, chromatic direction 1,
# infrared weights 2, knots of the uneven light.
SHARED_DRAWS = 6 + KNOTS
BORDER_DRAWS = 8  # width and tilt of the black margin at each side
OWN_DRAWS = BLOB_DRAWS + BORDER_DRAWS + GLARE_DRAWS


class _Draws(NamedTuple):
    """One camera per view: views stacked as [left 0 … B-1, right 0 … B-1], N = 2 B."""

    strengths: dict[str, Tensor]  # (N,) each
    shared: Tensor  # (SHARED_DRAWS, N) in [0, 1), equal for both views of a pair
    own: Tensor  # (OWN_DRAWS, N) in [0, 1), different in each view but for frames of one camera


@lru_cache(maxsize=64)
def _limits(config: SensorConfig, device: torch.device) -> Tensor:
    """(7, ingredients, 1): probability, low, span, log(high/low), difference, logarithmic, never negative."""
    rows = []
    for name in INGREDIENTS:
        item: Ingredient = getattr(config, name)
        ratio = math.log(item.high / item.low) if item.logarithmic else 0.0
        span = item.high - item.low
        rows.append((item.probability, item.low, span, ratio, item.difference, item.logarithmic, item.low >= 0))
    return torch.tensor(rows, dtype=torch.float32, device=device).T[..., None].contiguous()


class _Chance:
    """Random numbers of a batch: from one generator, or from a seed for each pair."""

    def __init__(self, source: torch.Generator | int | Sequence[int], pairs: int, device: torch.device) -> None:
        if isinstance(source, int):
            source = torch.Generator(device).manual_seed(source)
        if not isinstance(source, torch.Generator) and len(source) != pairs:
            raise InputError(f"{pairs} pairs need as many seeds, not {len(source)}; give one seed for each pair")
        self.pairs, self.device = pairs, device
        self.generators = (
            [source]
            if isinstance(source, torch.Generator)
            else [torch.Generator(device).manual_seed(seed) for seed in source]
        )
        self.apart = not isinstance(source, torch.Generator)

    def uniform(self, rows: int) -> Tensor:
        """(rows, pairs) in [0, 1)."""
        if not self.apart:
            return torch.rand((rows, self.pairs), generator=self.generators[0], device=self.device)
        return torch.stack([torch.rand(rows, generator=g, device=self.device) for g in self.generators], dim=1)

    def seeds(self) -> Tensor:
        """(2 pairs,) int64: one for each image, to be expanded by a kernel."""
        count = 2 if self.apart else 2 * self.pairs
        drawn = [torch.randint(2**62, (count,), generator=g, device=self.device) for g in self.generators]
        return torch.stack(drawn, dim=1).flatten()

    def normal_like(self, images: Tensor) -> Tensor:
        """Standard normal numbers in the shape of ``images``, (2 pairs, …)."""
        noise = torch.empty_like(images)
        if not self.apart:
            return noise.normal_(generator=self.generators[0])
        for pair, generator in enumerate(self.generators):
            noise[pair].normal_(generator=generator)
            noise[self.pairs + pair].normal_(generator=generator)
        return noise


def _draw(config: SensorConfig, pairs: int, chance: _Chance, device: torch.device) -> _Draws:
    """Draw every ingredient whether it is used or not: switching one off leaves the others as they were."""
    count = len(INGREDIENTS)
    parts = [2 * count + SHARED_DRAWS, 2 * (count + OWN_DRAWS)]
    common, own = chance.uniform(sum(parts)).split(parts)
    gate, value, shared = common.split([count, count, SHARED_DRAWS])
    own = own.reshape(count + OWN_DRAWS, 2 * pairs)

    probability, low, span, ratio, difference, logarithmic, magnitude = _limits(config, device)
    level = torch.where(logarithmic > 0, low * torch.exp(ratio * value), low + span * value)
    present = (gate < probability).float()
    level = level * present
    mismatch = 1 + level[INGREDIENTS.index("mismatch")]
    apart = (2 * own[:count] - 1) * difference * (present * mismatch).repeat(1, 2)
    strengths = level.repeat(1, 2) + apart  # (ingredients, N)
    strengths = torch.where(magnitude > 0, strengths.clamp_min(0), strengths)
    places = own[count:]
    if config.one_camera:
        places = places[:, :pairs].repeat(1, 2)
    return _Draws(dict(zip(INGREDIENTS, strengths)), shared.repeat(1, 2), places)


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


@lru_cache(maxsize=16)
def _luma(device: torch.device) -> Tensor:
    return torch.tensor(LUMA, device=device)


@lru_cache(maxsize=16)
def _demosaic_kernels(device: torch.device) -> Tensor:
    """(3, 1, 3, 3): bilinear interpolation of red, green and blue from their own sites."""
    corner = torch.tensor([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 4
    cross = torch.tensor([[0.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 0.0]]) / 4
    return torch.stack([corner, cross, corner])[:, None].to(device)


@lru_cache(maxsize=16)
def _halo_kernels(device: torch.device) -> Tensor:
    """(3, 1, 5, 5): the Gaussian of 1 px that an unsharp mask subtracts."""
    line = torch.exp(-(torch.arange(-2.0, 3.0) ** 2) / 2)
    line = line / line.sum()
    return (line[:, None] * line).expand(3, 1, 5, 5).contiguous().to(device)


def _illuminate(images: Tensor, config: SensorConfig, draws: _Draws) -> tuple[Tensor, Tensor]:
    """Exposure, colour cast, vignetting, uneven light, dust, smudges and glare.

    Returns:
        the images, and (N,) by how much they were brightened: a dark place costs noise.
    """
    strength = draws.strengths
    height, width = images.shape[-2:]
    gain = torch.exp2(strength["exposure"])
    if config.auto_exposure.active:
        mean = images.clamp(0, 1).mean((1, 2, 3)).view(2, -1).mean(0).repeat(2)  # one gain for the pair
        gain = gain * ((MIDDLE_GREY / mean.clamp_min(1e-3)).clamp(0.2, 8) ** strength["auto_exposure"])
    red, blue = draws.shared[0] * 2 - 1, draws.shared[1] * 2 - 1
    cast = torch.stack([red, -(red + blue) / 4, blue], dim=1)  # (N, 3)
    images = images * (gain[:, None] * torch.exp(strength["white_balance"][:, None] * cast))[..., None, None]
    if not config.active(*FIELDS):
        return images, gain
    knots = (2 * draws.shared[-KNOTS:] - 1).T.reshape(-1, *LIGHT_CELLS)
    field = smooth_gain(strength["vignetting"], strength["uneven_light"], knots, height, width)
    dust, smudge = blobs(draws.own[:BLOB_DRAWS], height, width)
    veil = strength["smudge"][:, None, None] * smudge
    field = field * (1 - strength["dust"].clamp_max(1)[:, None, None] * dust) * (1 - veil)
    if config.glare.active:
        veil = veil + strength["glare"][:, None, None] * glare(draws.own[-GLARE_DRAWS:], height, width)
    field, veil = enlarge(torch.stack([field, veil], dim=1), height, width).split(1, dim=1)
    return torch.addcmul(veil, images, field), gain


def _focus(images: Tensor, draws: _Draws) -> Tensor:
    """Defocus, streak and chromatic shift: one separable filter for each channel."""
    strength = draws.strengths
    count = images.shape[0]
    along_x = (draws.shared[2] < 0.7).float()  # rigs turn sideways more often than they nod
    angle = draws.shared[3] * (2 * math.pi)
    # A crop away from the optical centre sees the radial shift of red and blue as nearly constant.
    side = torch.arange(1, -2, -1, device=images.device) * 0.5  # red +1/2, green 0, blue -1/2
    shift = strength["chromatic_shift"][:, None] * side  # (N, 3)
    # Both directions at once: small operations cost their launch, not their numbers.
    part = torch.stack([along_x, 1 - along_x])  # (2, N)
    direction = torch.stack([torch.cos(angle), torch.sin(angle)])
    blur = strength["defocus"].clamp_max(2.5)[:, None].expand(2, count, 3)
    lengths = (strength["streak"] * part)[..., None].expand(2, count, 3)
    columns, rows = line_taps(blur.flatten(), lengths.flatten(), (shift * direction[..., None]).flatten()).chunk(2)
    return spread(images, columns, rows)


def _expose(images: Tensor, iso: Tensor, chance: _Chance) -> Tensor:
    """Shot and read noise; ``iso`` (N,) is ISO / 100."""
    if images.device.type in FUSED_DEVICES:
        return kernels.expose(images.contiguous(), iso, chance.seeds(), SHOT_VARIANCE, READ_DEVIATION)
    iso = _per_image(iso)
    variance = images.clamp_min(0) * (iso * SHOT_VARIANCE) + (iso * READ_DEVIATION) ** 2
    return torch.addcmul(images, chance.normal_like(images), variance.sqrt_())


def _demosaic(images: Tensor, amount: Tensor) -> Tensor:
    """Keep one colour per pixel (RGGB), interpolate the others; ``amount`` (N,) blends."""
    height, width = images.shape[-2:]
    odd_row = (torch.arange(height, device=images.device) % 2)[:, None]
    odd_column = (torch.arange(width, device=images.device) % 2)[None]
    red, blue = (1 - odd_row) * (1 - odd_column), odd_row * odd_column
    sites = torch.stack([red, 1 - red - blue, blue]).to(images.dtype)  # (3, H, W)
    # Reflection keeps the pattern's parity across the border.
    raw = F.pad(images * sites, (1, 1, 1, 1), mode="reflect")
    return torch.lerp(images, F.conv2d(raw, _demosaic_kernels(images.device), groups=3), _per_image(amount))


def _colour_matrix(draws: _Draws) -> Tensor:
    """(N, 3, 3): saturation, greyscale and near infrared."""
    strength = draws.strengths
    device = draws.shared.device
    identity = torch.eye(3, device=device)
    luma = _luma(device).expand(3, 3)
    # Silicon's filters all pass infrared: weights lean to red, may be negative, and sum to one.
    red, blue = 0.5 + 0.8 * draws.shared[4], -0.3 + 0.6 * draws.shared[5]
    infrared = torch.stack([red, 1 - red - blue, blue], dim=1)[:, None].expand(-1, 3, 3)
    saturation = strength["colour_saturation"].view(-1, 1, 1)
    matrix = identity + saturation * (identity - luma)
    matrix = torch.lerp(matrix, luma.expand_as(matrix), strength["greyscale"].view(-1, 1, 1))
    return torch.lerp(matrix, infrared, strength["near_infrared"].view(-1, 1, 1))


def _develop(images: Tensor, config: SensorConfig, draws: _Draws) -> Tensor:
    """Linear light to grey levels in [0, 255]: mosaic, colours, shoulder, clipping, gamma, contrast, black level."""
    strength = draws.strengths
    # A camera without colour filters has no mosaic.
    mosaic = strength["mosaic"] * (1 - torch.maximum(strength["greyscale"], strength["near_infrared"]))
    exponent = DISPLAY_EXPONENT * torch.exp2(strength["gamma"])
    if images.device.type in FUSED_DEVICES:
        tone = [mosaic, strength["shoulder"], exponent, strength["contrast"], strength["black_level"]]
        table = torch.cat([_colour_matrix(draws).flatten(1), torch.stack(tone, dim=1)], dim=1)
        return kernels.develop(images.contiguous(), table)
    if config.mosaic.active:
        images = _demosaic(images, mosaic)
    if config.active("colour_saturation", "greyscale", "near_infrared"):
        images = torch.bmm(_colour_matrix(draws), images.flatten(2)).view_as(images)
    if config.shoulder.active:
        soft = _per_image(strength["shoulder"])
        images = images * (1 + soft) / (1 + soft * images.clamp_min(0))
    images = images.clamp(0, 1).pow_(_per_image(exponent))
    if config.contrast.active:
        images = torch.lerp(images, images * images * (3 - 2 * images), _per_image(strength["contrast"]))
    if config.black_level.active:
        images = torch.lerp(images, torch.ones_like(images), _per_image(strength["black_level"]))
    return images.clamp_(0, 1).mul_(255)


def _sharpen(images: Tensor, amount: Tensor) -> Tensor:
    """Unsharp mask of grey levels; ``amount`` (N,)."""
    blur = _halo_kernels(images.device)
    if images.device.type in FUSED_DEVICES:
        return kernels.sharpen(images.contiguous(), amount, blur[0, 0])
    halo = F.conv2d(F.pad(images, (2, 2, 2, 2), mode="replicate"), blur, groups=3)
    return torch.addcmul(images, images - halo, _per_image(amount)).clamp_(0, 255)


@lru_cache(maxsize=16)
def _ways_across(length: int, device: torch.device) -> Tensor:
    """(2, length): from 0 to 1 along a side, and back."""
    way = torch.linspace(0, 1, length)
    return torch.stack((way, 1 - way)).to(device)


def _frame(images: Tensor, share: Tensor, own: Tensor) -> Tensor:
    """Black margins with straight, slightly tilted edges; ``share`` (N,) of each side, ``own`` (BORDER_DRAWS, N)."""
    height, width = images.shape[-2:]
    down, across = _ways_across(height, images.device)[..., None], _ways_across(width, images.device)[:, None]
    # Squared: one side or two have most of it. Nothing at all where the ingredient was not drawn.
    margin = (own[:4].square() * share)[..., None, None]  # (4, N, 1, 1)
    slope = margin * (own[4:, :, None, None] - 0.5)
    sides = torch.addcmul(margin[:2], slope[:2], down[0])  # (2, N, H, 1)
    ends = torch.addcmul(margin[2:], slope[2:], across[0])  # (2, N, 1, W)
    inside = (across[:, None] >= sides) & (down[:, None] >= ends)  # (2, N, H, W)
    return images * (inside[0] & inside[1])[:, None]


@torch.no_grad()
def apply(
    image0: Tensor, image1: Tensor, config: SensorConfig, generator: torch.Generator | int | Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Photograph both views of a batch.

    Args:
        image0: (B, 3, H, W) float, linear light; 1 is white at exposure zero, more is allowed.
        image1: (B, 3, H, W), the other view.
        config: what may happen; `SensorConfig.preset` has four.
        generator: on the images' device, or a seed: the same state gives the same pictures. With a list of B seeds
            a pair's picture depends on its own seed alone, whatever batch it is in (not in a captured graph, where
            seeds would be frozen).

    Returns:
        Both views as (B, 3, H, W) float32 in [0, 255], as displayed.
    """
    if image0.ndim != 4 or image0.shape[1] != 3 or image0.shape != image1.shape:
        raise InputError(
            f"The sensor takes two views of one shape (B, 3, H, W), got {tuple(image0.shape)} and "
            f"{tuple(image1.shape)}; stack equal sizes and three channels"
        )
    chance = _Chance(generator, image0.shape[0], image0.device)
    draws = _draw(config, image0.shape[0], chance, image0.device)
    images = torch.cat([image0, image1]).float()

    gain = torch.ones_like(draws.strengths["noise"])
    if config.active(*GAINS, *FIELDS):
        images, gain = _illuminate(images, config, draws)
    if config.active("defocus", "streak", "chromatic_shift"):
        images = _focus(images, draws)
    if config.noise.active:
        # What the exposure lifts, it lifts by sensitivity: shot and read noise grow with it.
        images = _expose(images, draws.strengths["noise"] * gain.clamp_min(1), chance)
    images = _develop(images, config, draws)
    if config.sharpening.active:
        images = _sharpen(images, draws.strengths["sharpening"])
    if config.jpeg.active:
        loss = draws.strengths["jpeg"]
        images = torch.where(_per_image(loss) > 0, jpeg.compress(images, (100 - loss).clamp(1, 100)), images)
    if config.border.active:
        images = _frame(images, draws.strengths["border"], draws.own[BLOB_DRAWS : BLOB_DRAWS + BORDER_DRAWS])
    if config.eight_bit:
        images = images.round_()
    left, right = images.chunk(2)
    return left, right
