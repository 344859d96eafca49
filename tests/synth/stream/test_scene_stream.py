"""The stream: repeatable, resumable, whole batches of every preset."""

from dataclasses import replace

import pytest
import torch

from matchattention.errors import InputError
from matchattention.synth.dice import Dice
from matchattention.synth.rays.dispatch import KINDS
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.scene import draw_scenes

SMALL = replace(PRESETS["small"], photos=0.0)


def leaves(scene):
    if isinstance(scene, torch.Tensor):
        yield scene
    elif hasattr(scene, "_fields"):
        for field in scene:
            yield from leaves(field)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_renders(preset):
    config = replace(PRESETS[preset], samples=1, shadow_size=32, photos=0.0)
    batch = SceneStream(config, (24, 40), 3, 2, "cpu").next()
    for image in (batch.image0, batch.image1):
        assert image.shape == (3, 3, 24, 40)
        assert torch.isfinite(image).all()
        assert image.min() >= 0
        assert image.max() <= 255
        assert image.flatten(1).std(1).min() > 1  # nothing is blank
    for field, valid, sign in ((batch.field0, batch.valid0, -1), (batch.field1, batch.valid1, 1)):
        assert field.shape == (3, 24, 40, 2)
        assert torch.isfinite(field).all()
        if config.task == "stereo":
            assert (sign * field[..., 0] >= 0).all()
            assert (field[..., 1] == 0).all()
        assert (field[..., 0].abs() <= 20).all()
        assert valid.float().mean() > 0.9
    assert batch.occluded0.dtype == batch.occluded1.dtype == torch.bool


def test_same_seed_same_batch():
    first, second = (SceneStream(SMALL, (16, 24), 2, 4, "cpu").next() for _ in range(2))
    for a, b in zip(first, second):
        assert torch.equal(a, b)
    other = SceneStream(SMALL, (16, 24), 2, 5, "cpu").next()
    assert not torch.equal(first.field0, other.field0)


def test_sample_does_not_depend_on_its_batch():
    together = draw_scenes(SMALL, 4, range(7), (16, 24))
    alone = draw_scenes(SMALL, 4, [5], (16, 24))
    for a, b in zip(leaves(together), leaves(alone)):
        assert torch.allclose(a[5:6], b, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_resumes_where_it_stopped():
    stream = SceneStream(SMALL, (8, 12), 2, 4, "cpu")
    stream.next()
    assert stream.state == 2
    expected = stream.next()
    again = SceneStream(SMALL, (8, 12), 2, 4, "cpu", index=2).next()
    for a, b in zip(expected, again):
        assert torch.equal(a, b)


def test_bad_requests_say_what_to_do():
    with pytest.raises(InputError, match="power of two"):
        SceneStream(replace(SMALL, samples=3), (16, 24), 1, 0, "cpu")
    with pytest.raises(InputError, match="stereo or flow"):
        SceneStream(replace(SMALL, task="depth"), (16, 24), 1, 0, "cpu")
    with pytest.raises(InputError, match="at least"):
        SceneStream(SMALL, (4, 24), 1, 0, "cpu")
    with pytest.raises(InputError, match="choose among"):
        SceneStream(replace(SMALL, layouts={"moon": 1.0}), (16, 24), 1, 0, "cpu").next()


def test_switches_remove_their_ingredient():
    def count(kind, **changes):
        scene = draw_scenes(replace(SMALL, layouts={"flying": 1.0}, **changes), 1, range(8), (32, 48))
        return int(scene.primitives.counts[:, KINDS.index(kind)].sum())

    assert count("ellipsoid") > 0
    assert count("ellipsoid", curved=False) == 0
    assert count("torus", curved=False) == 0
    assert count("card", cards=False, plants=False) < count("card")
    assert count("frustum", wires=False) < count("frustum")


def test_dice_are_uniform_and_independent():
    dice = Dice(1, range(64), "cpu")
    a, b = dice.unit(500), dice.unit(500)
    assert abs(a.mean().item() - 0.5) < 0.01
    assert abs(a.var().item() - 1 / 12) < 0.002
    assert abs(torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1].item()) < 0.02
    assert abs(torch.corrcoef(torch.stack((a[:-1].flatten(), a[1:].flatten())))[0, 1].item()) < 0.02
    assert torch.equal(Dice(1, [40], "cpu").unit(500)[0], a[40])
    normal = dice.normal(2.0, 3.0, 1000)
    assert abs(normal.mean().item() - 2) < 0.05
    assert abs(normal.std().item() - 3) < 0.05
    picked = dice.choice([1.0, 0.0, 3.0], 1000)
    assert (picked != 1).all()
    assert abs((picked == 2).float().mean().item() - 0.75) < 0.01
