"""Seeds decide: dice, sensor draws of a run, noise of a view."""

from types import SimpleNamespace

import torch

from matchattention.synth.dice import Dice
from matchattention.synth.rays.dialect import as_torch
from matchattention.synth.rays.shading import AMBIENCE, lit_share
from matchattention.synth.sensor.pipeline import _Chance
from matchattention.synth.stream import scene_stream
from matchattention.synth.world import scene
from matchattention.synth.world.config import PRESETS

CPU = torch.device("cpu")


def test_dice_of_another_seed_fall_otherwise():
    first, again, other = (Dice(seed, [0, 1], "cpu").unit(8) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first[0], first[1])


def test_every_run_of_a_stream_has_its_own_sensor_draws(monkeypatch):
    seeds = []
    monkeypatch.setattr(scene_stream.pipeline, "apply", lambda a, b, config, seed: seeds.append(seed) or (a, b))
    images, field, known = torch.zeros(1, 2, 3, 8, 8), torch.zeros(1, 2, 8, 8, 2), torch.ones(1, 2, 8, 8)
    rendered = SimpleNamespace(image=images, field=field, valid=known, occluded=known)
    for seed in (1, 2):
        stream = scene_stream.SceneStream(PRESETS["small"], (8, 8), 1, seed, "cpu", workers=0)
        for first in (0, 32, 64):
            stream._photograph(rendered, first)
    assert len(set(seeds)) == 6


def test_each_image_has_its_own_noise():
    for source in (5, [5, 6]):
        noise = _Chance(source, 2, CPU).normal_like(torch.zeros(4, 3, 8, 8)).flatten(1)
        assert torch.corrcoef(noise).fill_diagonal_(0).abs().max() < 0.5
        assert _Chance(source, 2, CPU).seeds().unique().numel() == 4


def test_a_surface_does_not_shade_itself():
    """The bias lets a point pass that lies a little behind the light's depth map, and none further behind."""
    ambience = dict.fromkeys(AMBIENCE, 0.0)
    ambience |= {"shadow": 1.0, "shadow_focal": 10.0, "shadow_bias": 0.05}
    ambience |= {"shadow_xx": 1.0, "shadow_yy": 1.0, "shadow_zz": 1.0}
    depth = torch.tensor([1.9, 2.0, 2.04, 2.06, 3.0])
    zero = torch.zeros_like(depth)
    lit = as_torch(lit_share)(list(ambience.values()), zero, zero, depth, torch.full((64,), 2.0), 8)
    assert lit.tolist() == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_integers_are_drawn_evenly_from_low_to_below_high():
    drawn = Dice(3, range(64), "cpu").integer(2, 7, 500)
    counts = torch.bincount(drawn.flatten(), minlength=8)
    assert counts[:2].tolist() == [0, 0]
    assert counts[7] == 0
    assert (counts[2:7] / drawn.numel() - 0.2).abs().max() < 0.01


def test_normal_draws_have_the_mean_and_deviation_asked_for():
    drawn = Dice(4, range(64), "cpu").normal(3.0, 0.25, 1000)
    assert abs(drawn.mean() - 3.0) < 0.005
    assert abs(drawn.std() - 0.25) < 0.005


def test_choices_fall_as_often_as_their_weights_say():
    drawn = Dice(5, range(64), "cpu").choice((1.0, 0.0, 6.0, 3.0), 1000)
    shares = torch.bincount(drawn.flatten(), minlength=4) / drawn.numel()
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.0, 0.6, 0.3]), atol=0.01, rtol=0)


def test_samples_of_several_layouts_stay_in_their_order(monkeypatch):
    layouts = ["flying", "tunnel", "corridor", "flying"]  # drawn in groups: 0 and 3, then 1, then 2
    monkeypatch.setattr(scene, "choose_layout", lambda config, seed, index: layouts[index])
    together = scene.draw_scenes(PRESETS["small"], 1, range(4), (16, 24))
    for index in range(4):
        alone = scene.draw_scenes(PRESETS["small"], 1, [index], (16, 24))
        for name in ("rotation", "position", "lens", "disparity", "exposure"):
            torch.testing.assert_close(getattr(together, name)[index], getattr(alone, name)[0])
