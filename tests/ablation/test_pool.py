from dataclasses import replace

import pytest
import torch

from matchattention.ablation.pool import PairPool, ShuffledPool, render_pool
from matchattention.errors import InputError
from matchattention.synth.world.config import PRESETS

SCENES = replace(PRESETS["small"], layouts={"flying": 1.0}, photos=0.0, floating_count=4)


def numbered(pairs):
    """Pair i has the disparity i + 1 everywhere and a dark left edge."""
    images = torch.full((pairs, 2, 3, 32, 64), 200, dtype=torch.uint8)
    images[..., 0] = 10
    offset = torch.arange(1, pairs + 1).view(-1, 1, 1, 1).float()
    disparity = torch.cat((-offset, offset), 1).expand(-1, -1, 32, 64).contiguous()
    known = torch.ones(pairs, 2, 32, 64, dtype=torch.bool)
    return PairPool({"images": images, "disparity": disparity, "known": known, "occluded": ~known})


def seen(source, first, count):
    """(pair, mirrored) of each sample."""
    batch = source.batch(first, count, 32, 64)
    assert (batch.field0[..., 0] < 0).all()  # a mirrored pair is a pair as good: matches lie to the left
    assert (batch.field1[..., 0] > 0).all()
    flipped = batch.image0[:, 0, 0, -1] == 10
    return [(int(-x) - 1, bool(f)) for x, f in zip(batch.field0[:, 0, 0, 0], flipped)]


def test_every_pair_and_its_mirror_image_once_a_round():
    source = ShuffledPool(numbered(5), seed=3)
    rounds = [
        sorted(entry for first in range(10 * r, 10 * r + 10, 2) for entry in seen(source, first, 2)) for r in (0, 1)
    ]
    assert rounds[0] == rounds[1] == sorted((pair, flip) for pair in range(5) for flip in (False, True))


def test_the_order_is_the_seeds():
    first, again, other = (ShuffledPool(numbered(8), seed) for seed in (1, 1, 2))
    assert seen(first, 0, 8) == seen(again, 0, 8)
    assert seen(first, 0, 8) != seen(other, 0, 8)
    assert seen(first, 16, 8) != seen(first, 0, 8)


def test_another_size_is_refused():
    with pytest.raises(InputError, match="32x64, not 64x64"):
        ShuffledPool(numbered(2), 1).batch(0, 1, 64, 64)


def test_a_folder_keeps_what_was_rendered(tmp_path, monkeypatch):
    rendered = render_pool(SCENES, (32, 64), 2, 1, torch.device("cpu"), tmp_path)
    monkeypatch.setattr("matchattention.ablation.pool._render", None)  # would fail
    again = render_pool(SCENES, (32, 64), 2, 1, torch.device("cpu"), tmp_path)
    assert rendered.tensors.keys() == again.tensors.keys()
    assert all(torch.equal(rendered.tensors[name], again.tensors[name]) for name in again.tensors)
    with pytest.raises(TypeError):
        render_pool(SCENES, (32, 64), 2, 2, torch.device("cpu"), tmp_path)  # another seed is another pool


def test_a_pool_is_what_the_renderer_gives():
    from matchattention.synth.stream.scene_stream import SceneStream

    batch = SceneStream(SCENES, (32, 64), 2, 1, "cpu").next()
    taken = render_pool(SCENES, (32, 64), 2, 1, torch.device("cpu")).take(torch.tensor([1]))
    assert torch.equal(taken.field1[0], torch.where(taken.valid1[0, ..., None], batch.field1[1], 0.0))
    assert torch.equal(taken.occluded0[0], batch.occluded0[1])
    assert (taken.image0[0] - batch.image0[1].clamp(0, 255)).abs().max() <= 0.5


def test_flow_scenes_are_refused():
    with pytest.raises(InputError, match="stereo"):
        render_pool(replace(SCENES, task="flow"), (32, 64), 1, 1, torch.device("cpu"))
