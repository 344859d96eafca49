"""The camera: what each ingredient changes, what it leaves alone, and what both views share."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from matchattention.errors import InputError
from matchattention.synth.sensor.config import INGREDIENTS, PRESETS, Ingredient
from matchattention.synth.sensor.optics import line_taps
from matchattention.synth.sensor.pipeline import SensorConfig, apply

SIZE = (48, 64)


def scene(pairs: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Coloured noise over a ramp: something at every frequency, brightness and hue."""
    generator = torch.Generator().manual_seed(5)
    ramp = torch.linspace(0.05, 0.7, SIZE[1]).expand(2 * pairs, 3, *SIZE)
    images = ramp + 0.2 * torch.rand((2 * pairs, 3, *SIZE), generator=generator)
    return images[:pairs], images[pairs:]


def only(**ingredients: Ingredient) -> SensorConfig:
    return SensorConfig(eight_bit=False, **ingredients)


def displayed(images: torch.Tensor) -> torch.Tensor:
    return 255 * images.clamp(0, 1) ** (1 / 2.2)


def always(strength: float) -> Ingredient:
    return Ingredient(1.0, strength, strength)


# A strength for each ingredient that must be visible on `scene`.
VISIBLE = {
    "auto_exposure": 1.0,
    "exposure": 0.5,
    "white_balance": 0.3,
    "vignetting": 0.5,
    "uneven_light": 0.3,
    "dust": 0.8,
    "smudge": 0.3,
    "glare": 0.3,
    "defocus": 1.0,
    "streak": 5.0,
    "chromatic_shift": 1.0,
    "noise": 16.0,
    "mosaic": 1.0,
    "colour_saturation": -0.5,
    "greyscale": 1.0,
    "near_infrared": 1.0,
    "shoulder": 2.0,
    "gamma": 0.4,
    "contrast": 0.5,
    "black_level": 0.1,
    "sharpening": 1.0,
    "jpeg": 60.0,
    "border": 0.3,
}


def test_clean_is_the_display_curve_and_nothing_else():
    left, right = scene()
    out0, out1 = apply(left, right, replace(PRESETS["clean"], eight_bit=False), 0)
    torch.testing.assert_close(out0, displayed(left), atol=1e-3, rtol=0)
    torch.testing.assert_close(out1, displayed(right), atol=1e-3, rtol=0)
    rounded, _ = apply(left, right, PRESETS["clean"], 0)
    torch.testing.assert_close(rounded, displayed(left).round(), atol=1, rtol=0)
    assert torch.equal(rounded, rounded.round())


def test_ingredients_of_zero_strength_change_nothing():
    left, right = scene()
    idle = only(**{name: Ingredient(1.0, 0.0, 0.0) for name in INGREDIENTS})
    for out, view in zip(apply(left, right, idle, 0), (left, right)):
        torch.testing.assert_close(out, displayed(view), atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", VISIBLE)
def test_each_ingredient_is_visible(name: str):
    left, right = scene()
    out, _ = apply(left, right, only(**{name: always(VISIBLE[name])}), 3)
    assert (out - displayed(left)).abs().max() > 3


def test_every_ingredient_has_its_test():
    assert set(VISIBLE) | {"mismatch"} == set(INGREDIENTS)


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_stay_in_range_and_repeat(preset: str):
    left, right = scene(8)
    config = SensorConfig.preset(preset)
    first = apply(4 * left, right, config, 7)
    again = apply(4 * left, right, config, torch.Generator().manual_seed(7))
    for view, same in zip(first, again):
        assert torch.equal(view, same)
        assert view.isfinite().all()
        assert view.min() >= 0
        assert view.max() <= 255
        assert torch.equal(view, view.round())
    other = apply(4 * left, right, config, 8)
    assert preset == "clean" or not torch.equal(first[0], other[0])


def test_a_pair_with_its_own_seed_does_not_depend_on_its_batch():
    left, right = scene(4)
    together = apply(left, right, PRESETS["harsh"], [11, 12, 13, 14])
    alone = apply(left[2:3], right[2:3], PRESETS["harsh"], [13])
    for batch, single in zip(together, alone):
        torch.testing.assert_close(batch[2:3], single, atol=1, rtol=0)  # sums may round another way
        assert (batch[2:3] != single).float().mean() < 0.01
    with pytest.raises(InputError, match="as many seeds"):
        apply(left, right, PRESETS["harsh"], [1, 2])


def test_input_is_left_alone():
    left, right = scene()
    before = left.clone(), right.clone()
    apply(left, right, PRESETS["harsh"], 1)
    assert torch.equal(left, before[0])
    assert torch.equal(right, before[1])


@pytest.mark.parametrize("iso", [1.0, 4.0, 16.0])
def test_noise_variance_follows_iso(iso: float):
    level = 0.25
    flat = torch.full((1, 3, 256, 256), level)
    out, other = apply(flat, flat, only(noise=always(iso)), 2)
    linear = (out / 255) ** 2.2
    expected = iso * 1e-4 * level + (iso * 6e-4) ** 2
    # 196 608 samples: the variance's own deviation is 0.3 %; the display curve is inverted, not linearised.
    assert linear.var().item() == pytest.approx(expected, rel=0.02)
    assert linear.mean().item() == pytest.approx(level, rel=0.01)
    both = torch.stack([out.flatten(), other.flatten()])
    assert torch.corrcoef(both)[0, 1].abs() < 0.02  # the two views' noise is independent


def test_views_share_the_common_part_and_differ_by_the_difference():
    left, _ = scene(16)
    shared = only(exposure=Ingredient(1.0, -1.0, 1.0), white_balance=Ingredient(1.0, 0.1, 0.3))
    out0, out1 = apply(left, left, shared, 4)
    assert torch.equal(out0, out1)
    assert (out0.mean((1, 2, 3)).std()) > 5  # while pairs differ from each other
    apart = replace(shared, exposure=Ingredient(1.0, -1.0, 1.0, difference=0.1))
    small0, small1 = apply(left, left, apart, 4)
    large0, large1 = apply(left, left, replace(apart, mismatch=always(9.0)), 4)
    small, large = (small0 - small1).abs().mean(), (large0 - large1).abs().mean()
    assert 0.5 < small < 8
    assert 4 * small < large


def test_dust_sits_on_each_sensor():
    flat = torch.full((1, 3, 96, 128), 0.3)
    out0, out1 = apply(flat, flat, only(dust=always(0.8)), 11)
    assert (out0 - out1).abs().max() > 20
    assert (out0 <= displayed(flat) + 1e-3).all()  # it only takes light


def test_probability_is_the_share_of_pairs():
    flat = torch.full((4000, 3, 2, 2), 0.3)
    out, _ = apply(flat, flat, only(exposure=Ingredient(0.25, 1.0, 1.0)), 0)
    changed = (out[:, 0, 0, 0] > displayed(flat)[0, 0, 0, 0] + 1).float().mean().item()
    assert changed == pytest.approx(0.25, abs=0.03)


def test_logarithmic_strengths_spread_over_decades():
    flat = torch.full((4000, 3, 2, 2), 1e-3)
    out, _ = apply(flat, flat, only(exposure=Ingredient(1.0, 0.08, 8.0, logarithmic=True)), 0)
    stops = torch.log2((out[:, 0, 0, 0] / 255) ** 2.2 / 1e-3)
    assert stops.median().item() == pytest.approx(0.8, rel=0.15)


def test_switching_one_off_leaves_the_others():
    left, right = scene(4)
    config = only(exposure=Ingredient(0.7, -1, 1), white_balance=Ingredient(0.6, 0, 0.3), defocus=always(1.0))
    without = apply(left, right, config.without("defocus"), 9)[0]
    alone = apply(left, right, replace(config, defocus=Ingredient()), 9)[0]
    assert torch.equal(without, alone)
    sharp_gain = without.mean((2, 3)) / displayed(left).mean((2, 3))
    blurred_gain = apply(left, right, config, 9)[0].mean((2, 3)) / displayed(left).mean((2, 3))
    torch.testing.assert_close(sharp_gain, blurred_gain, rtol=0.02, atol=0)


def test_blur_keeps_the_mean_and_removes_detail():
    left, right = scene()
    out, _ = apply(left, right, only(defocus=always(1.5)), 0)
    linear = (out / 255) ** 2.2
    assert linear.mean().item() == pytest.approx(left.mean().item(), rel=0.01)
    assert linear.diff(dim=-1).abs().mean() < 0.4 * left.diff(dim=-1).abs().mean()


def test_borders_are_black_differ_between_the_views_and_leave_the_rest_alone():
    bright = torch.full((16, 3, 40, 60), 0.5)
    views = apply(bright, bright, only(border=always(0.1)), 0)
    for out in views:
        inside = out[:, 0] > 0
        torch.testing.assert_close(out[:, 0][inside], displayed(bright)[:, 0][inside], atol=1, rtol=0)
        assert inside[:, 10:-10, 14:-14].all()
        assert 0.02 < 1 - inside.float().mean() < 0.2
    assert not torch.equal(*views)


def test_streak_is_common_to_both_views_and_along_one_axis():
    dot = torch.zeros(1, 3, 31, 31)
    dot[..., 15, 15] = 1.0
    out0, out1 = apply(dot, dot, only(streak=always(5.0)), 0)
    assert torch.equal(out0, out1)
    rows, columns = (out0[0, 0] > 1).any(1).sum().item(), (out0[0, 0] > 1).any(0).sum().item()
    assert sorted((rows, columns)) == [1, 5]


def test_chromatic_shift_moves_red_against_blue_and_keeps_green():
    left, right = scene(1)
    out, _ = apply(left, right, only(chromatic_shift=always(1.0)), 0)
    change = (out - displayed(left)).abs().mean((0, 2, 3))
    assert change[1] < 1e-3
    assert change[0] > 1
    assert change[2] > 1


def test_shift_moves_content_by_its_size():
    taps = line_taps(torch.tensor([0.0, 0.0, 1.0]), torch.zeros(3), torch.tensor([2.0, -0.25, 0.5]))
    places = torch.arange(-7.0, 8.0)
    torch.testing.assert_close((taps * -places).sum(1), torch.tensor([2.0, -0.25, 0.5]), atol=1e-4, rtol=0)
    torch.testing.assert_close(taps.sum(1), torch.ones(3))


def test_greyscale_and_infrared_have_equal_channels():
    left, right = scene()
    for name in ("greyscale", "near_infrared"):
        out, _ = apply(left, right, only(**{name: always(1.0), "mosaic": always(1.0)}), 0)
        torch.testing.assert_close(out[:, 0], out[:, 1], atol=1e-3, rtol=0)
        torch.testing.assert_close(out[:, 0], out[:, 2], atol=1e-3, rtol=0)
        assert out.std() > 10


def test_mosaic_keeps_flat_colours_and_each_site_its_own():
    flat = torch.tensor([0.2, 0.5, 0.8]).view(1, 3, 1, 1).expand(1, 3, *SIZE)
    out, _ = apply(flat, flat, only(mosaic=always(1.0)), 0)
    torch.testing.assert_close(out, displayed(flat), atol=1e-2, rtol=0)
    left, right = scene(1)
    out, _ = apply(left, right, only(mosaic=always(1.0)), 0)
    torch.testing.assert_close(out[:, 0, ::2, ::2], displayed(left)[:, 0, ::2, ::2], atol=1e-2, rtol=0)
    torch.testing.assert_close(out[:, 2, 1::2, 1::2], displayed(left)[:, 2, 1::2, 1::2], atol=1e-2, rtol=0)


def test_auto_exposure_brings_dark_pairs_to_middle_grey():
    left, _ = scene()
    out0, out1 = apply(left / 5, left / 5, only(auto_exposure=always(1.0)), 0)
    assert ((out0 / 255) ** 2.2).mean().item() == pytest.approx(0.2, rel=0.02)
    assert torch.equal(out0, out1)


@pytest.mark.parametrize("shapes", [((1, 3, 8, 8), (1, 3, 8, 9)), ((1, 1, 8, 8), (1, 1, 8, 8)), ((3, 8, 8), (3, 8, 8))])
def test_wrong_shapes_are_named(shapes: tuple[tuple[int, ...], tuple[int, ...]]):
    with pytest.raises(InputError, match="one shape"):
        apply(torch.zeros(shapes[0]), torch.zeros(shapes[1]), SensorConfig(), 0)


def test_bad_settings_are_named():
    with pytest.raises(InputError, match="sensor preset"):
        SensorConfig.preset("perfect")
    with pytest.raises(InputError, match="No ingredient"):
        SensorConfig().without("grain")
    with pytest.raises(InputError, match="probability"):
        Ingredient(50.0, 0, 1)
    with pytest.raises(InputError, match="low <= high"):
        Ingredient(0.5, 1, 0)
    with pytest.raises(InputError, match="above zero"):
        Ingredient(0.5, 0, 1, logarithmic=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_runs_inside_a_cuda_graph():
    left, right = (view.cuda() for view in scene())
    generator = torch.Generator("cuda").manual_seed(3)
    expected = apply(left, right, PRESETS["harsh"], generator)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        captured = apply(left, right, PRESETS["harsh"], generator)
    generator.manual_seed(3)
    graph.replay()
    for view, wanted in zip(captured, expected):
        torch.testing.assert_close(view, wanted, atol=1, rtol=0)


def test_sharpening_is_an_unsharp_mask_of_one_pixel():
    edge = torch.full((1, 3, 16, 24), 0.2)
    edge[..., 12:] = 0.3
    out, _ = apply(edge, edge, only(sharpening=always(0.8)), 0)
    grey = displayed(edge)[0, 0, 0].tolist()
    taps = [math.exp(-(k**2) / 2) for k in range(-2, 3)]
    for x in range(2, 22):  # constant along columns: the blur is one line's
        blurred = sum(tap * grey[x + k - 2] for k, tap in enumerate(taps)) / sum(taps)
        assert out[0, :, 8, x].tolist() == pytest.approx([grey[x] + 0.8 * (grey[x] - blurred)] * 3, abs=0.01)


def test_the_shoulder_lifts_the_shadows_and_leaves_black_and_white():
    light = torch.linspace(0, 1, 24).expand(1, 3, 8, 24)
    out, _ = apply(light, light, only(shoulder=always(2.0)), 0)
    torch.testing.assert_close(out, displayed(3 * light / (1 + 2 * light)), atol=0.02, rtol=0)


def test_vignetting_darkens_the_corners_and_leaves_the_centre():
    flat = torch.full((1, 3, 96, 128), 0.4)
    out, _ = apply(flat, flat, only(vignetting=always(0.5)), 0)
    linear = (out[0, 0] / 255) ** 2.2
    assert linear[48, 64].item() == pytest.approx(0.4, rel=0.02)
    for y, x in ((0, 0), (0, -1), (-1, 0), (-1, -1)):
        assert linear[y, x].item() == pytest.approx(0.4 * (1 - 0.5), rel=0.1)


@pytest.mark.parametrize("name", ["dust", "smudge", "glare", "border"])
def test_what_is_on_the_glass_stays_in_place_between_frames_of_one_camera(name: str):
    plain = torch.full((6, 3, 64, 96), 0.3)
    config = only(**{name: always(0.3)})
    both = apply(plain, plain, replace(config, one_camera=True), 4)
    assert (both[0] - displayed(plain)).abs().amax((1, 2, 3)).min() > 3  # in every pair
    torch.testing.assert_close(both[0], both[1], atol=1e-3, rtol=0)
    left, right = apply(plain, plain, config, 4)
    torch.testing.assert_close(left, both[0], atol=1e-3, rtol=0)  # the first frame is the same picture either way
    assert (left - right).abs().max() > 3


def test_glare_adds_light_with_sharp_ghosts():
    """Half of it around its source, and edges that a smudge never has."""
    dark = torch.full((16, 3, 128, 256), 0.02)
    out, _ = apply(dark, dark, only(glare=always(0.2)), 1)
    added = out - displayed(dark)
    assert added.min() > -1e-2
    step = (out[:, 0, :, 4:] - out[:, 0, :, :-4]).abs().amax((1, 2))  # across a coarse cell
    veiled, _ = apply(dark, dark, only(smudge=always(0.2)), 1)
    assert step.median() > 2 * (veiled[:, 0, :, 4:] - veiled[:, 0, :, :-4]).abs().amax((1, 2)).median()
