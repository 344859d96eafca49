"""What real pairs get wrong is in the scenes: black cars, white houses, tunnels, cut surfaces, fine patterns."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from matchattention.synth.dice import Dice
from matchattention.synth.rays.dispatch import KINDS
from matchattention.synth.rays.materials import COLUMNS, PATTERNS
from matchattention.synth.sensor import pipeline
from matchattention.synth.sensor.config import Ingredient, SensorConfig
from matchattention.synth.world import palette
from matchattention.synth.world.config import PRESETS, SceneConfig
from matchattention.synth.world.scene import Scene, draw_scenes

SIZE = (96, 192)
MANY = list(range(24))


def _palette(**switches: float) -> torch.Tensor:
    config = replace(SceneConfig(), **switches)
    return palette.palette(Dice(3, MANY, "cpu"), config, torch.full((len(MANY),), 100.0), True, 0)


def _column(table: torch.Tensor, name: str) -> torch.Tensor:
    return table[..., COLUMNS.index(name)]


def _brightness(table: torch.Tensor, slot: int) -> torch.Tensor:
    return table[:, slot, 6:9].mean(-1)


def _draw(layout: str, **switches: float) -> Scene:
    return draw_scenes(replace(PRESETS[layout], **switches), 5, MANY, SIZE)


def test_black_paint_is_black_and_glossy() -> None:
    black, none = _palette(black_paint=1.0), _palette(black_paint=0.0)
    for slot in range(palette.PAINT, palette.PAINT + palette.PAINTS):
        assert _brightness(black, slot).max() < 0.1
        assert _column(black, "environment")[:, slot].min() > 0.3
    assert _brightness(none, palette.PAINT).mean() > 0.15
    assert torch.equal(_brightness(black, palette.FACADE), _brightness(none, palette.FACADE))  # the rest stays


def test_white_facades_are_white_and_half_of_them_bare() -> None:
    white, usual = _palette(white_facades=1.0), _palette(white_facades=0.0)
    assert _brightness(white, palette.FACADE).min() > 0.5
    assert _brightness(usual, palette.FACADE).mean() < 0.5
    patterns = _column(white, "pattern")[:, palette.FACADE]
    windows = float(PATTERNS.index("windows"))
    assert 0.2 < (patterns == windows).float().mean() < 0.8
    assert (_column(usual, "pattern")[:, palette.FACADE] == windows).all()


def test_fine_patterns_have_periods_of_few_pixels() -> None:
    def shortest(share: float) -> float:
        table = _palette(fine_patterns=share)[:, palette.GENERIC :]
        regular = ~torch.isin(_column(table, "pattern"), torch.tensor(palette.NOISE_LIKE, dtype=torch.float32))
        return float((100.0 / _column(table, "frequency"))[regular].median())  # px

    assert 4 <= shortest(1.0) <= 9
    assert shortest(0.0) > 15


@pytest.mark.parametrize("layout", ["rooms", "street", "tabletop"])
def test_beside_is_cut_by_the_margin(layout: str) -> None:
    """With the switch on, every scene has one box more, and it spans the edge of the image where it stands."""
    plain = dict(floating=0.0, wires=False, cards=False, plants=False, panes=0.0)
    scenes = [_draw(layout, beside=share, **plain) for share in (0.0, 1.0)]
    boxes = KINDS.index("box")
    without, there = (scene.primitives.counts[:, boxes] for scene in scenes)
    assert ((there == without + 1) | (there == PRESETS[layout].capacity["box"])).all()
    scene = scenes[1]
    first = scene.primitives.slots[boxes]
    fits = there < PRESETS[layout].capacity["box"]
    slot = first + there.long() - 1  # `thin_things` comes last
    row = torch.arange(len(MANY))
    centre = scene.primitives.centre[row, slot] - scene.position
    local = torch.einsum("bij,bj->bi", scene.rotation, centre)
    half = scene.primitives.half[row, slot]
    pixels = scene.lens[:, 0] / (local[:, 2] - half[:, 2])  # of its front
    middle, reach = (local[:, 0] * pixels).abs(), half[:, 0] * pixels
    assert (local[:, 2] > 0)[fits].all()
    assert ((middle - reach < 0.55 * SIZE[1]) & (middle + reach > 0.45 * SIZE[1]))[fits].all()
    assert (local[:, 0] < 0)[fits].float().mean() > 0.5


def test_tunnel_is_dark_and_has_lamps() -> None:
    tunnel, street = _draw("tunnel"), _draw("street")
    assert tunnel.exposure.median() < 0.6 * street.exposure.median()
    glow = _column(tunnel.material, "emission") > 0.9
    assert glow.any(1).float().mean() > 0.5
    with_lamps_off = _draw("tunnel", emission=False)
    assert not (_column(with_lamps_off.material, "emission") > 0).any()


def test_a_dark_place_costs_noise() -> None:
    """Two evenly grey pairs, one with a tenth of the light: as bright in the picture, with more noise."""
    config = SensorConfig(auto_exposure=Ingredient(1.0, 1.0, 1.0), noise=Ingredient(1.0, 4.0, 4.0), eight_bit=False)

    def photograph(level: float) -> torch.Tensor:
        grey = torch.full((1, 3, 64, 64), level)
        return pipeline.apply(grey, grey, config, 1)[0]

    bright, dark = photograph(0.2), photograph(0.03)
    assert dark.mean() == pytest.approx(float(bright.mean()), rel=0.05)
    assert dark.std() > 1.8 * bright.std()


def test_what_hangs_before_a_scene_can_be_made_rare() -> None:
    cards = KINDS.index("card")
    counts = [_draw("flying", thin=thin, floating=0.0).primitives.counts[:, cards].sum() for thin in (0.0, 0.5, 1.0)]
    without = _draw("flying", cards=False, wires=False, plants=False, floating=0.0).primitives.counts[:, cards].sum()
    assert counts[0] == without
    assert counts[0] < counts[1] < counts[2]
