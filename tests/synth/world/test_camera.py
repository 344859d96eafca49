"""Where cameras look and what they see."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from matchattention.synth.dice import Dice
from matchattention.synth.world.builder import pitch_rotation, yaw_rotation
from matchattention.synth.world.camera import Camera, aim
from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.motion import _move_camera
from matchattention.synth.world.scene import draw_scenes

SIZE = (100, 400)  # px: four times as wide as high


def test_roll_turns_the_image_and_not_the_view() -> None:
    yaw, pitch, position = torch.tensor([0.7, -1.2]), torch.tensor([0.3, -0.2]), torch.zeros(2, 3)
    cameras = [
        aim(Dice(1, [0, 1], "cpu"), replace(PRESETS["small"], roll=roll), SIZE, position, yaw, pitch)
        for roll in (0.0, 10.0)
    ]
    straight = pitch_rotation(pitch) @ yaw_rotation(yaw)
    torch.testing.assert_close(cameras[0].rotation, straight)
    torch.testing.assert_close(cameras[1].rotation[:, 2], straight[:, 2])  # where it looks
    assert (cameras[1].rotation[:, :2] - straight[:, :2]).abs().amax() > 0.02


def test_scattered_points_fill_the_image_and_a_little_more() -> None:
    rotation = (pitch_rotation(torch.tensor([0.4])) @ yaw_rotation(torch.tensor([2.0]))).expand(1, 3, 3)
    position = torch.tensor([[1.0, -2.0, 3.0]])
    camera = Camera(rotation, position, torch.tensor([300.0]), torch.zeros(1, 2), SIZE)
    points, depth = camera.scatter(Dice(2, [0], "cpu"), 1.0, 50.0, 2000)
    seen = (points - position[:, None]) @ rotation.transpose(-1, -2)  # camera axes
    torch.testing.assert_close(seen[..., 2], depth, atol=1e-3, rtol=1e-3)
    across, down = (300.0 * seen[..., axis] / seen[..., 2] for axis in (0, 1))
    for place, side in ((across, 400), (down, 100)):
        assert 0.5 * side < place.abs().max() < 0.551 * side
    assert 0.9 < depth.min() < 1.2
    assert 40 < depth.max() < 51


def test_a_still_camera_neither_moves_nor_zooms() -> None:
    config = replace(PRESETS["flow-small"], camera_still=1.0, zoom=1.0)
    scene = draw_scenes(config, 3, range(2), (16, 24))
    assert scene.second is not None
    assert torch.equal(scene.second.zoom, torch.ones(2))
    assert torch.equal(scene.second.rotation, scene.rotation)
    assert torch.equal(scene.second.position, scene.position)


class FollowingDice(Dice):
    """Cameras that step to a side and up or down, and turn all the way to what they filmed."""

    def chance(self, probability, *shape):
        return torch.full((self.count, *shape), probability == 0.4)

    def uniform(self, low, high, *shape):
        return torch.ones(self.count, *shape) if high in (1.1, 1.3) else super().uniform(low, high, *shape)


def test_a_camera_that_follows_has_what_it_filmed_in_the_middle_again() -> None:
    indices = range(16)
    rotation = (pitch_rotation(torch.tensor([0.4])) @ yaw_rotation(torch.tensor([2.0]))).expand(16, 3, 3)
    camera = Camera(rotation, torch.ones(16, 3), torch.full((16,), 100.0), torch.zeros(16, 2), SIZE)
    config = replace(PRESETS["flow"], motion=(0.1, 0.2))
    depth = torch.full((16,), 5.0)
    turned, moved = _move_camera(FollowingDice(1, indices, "cpu"), config, camera, depth, road=False)
    filmed = camera.position + 5.0 * rotation[:, 2]
    assert ((moved - camera.position) @ rotation[0].T)[:, 1].abs().max() > 0.1  # some step up or down
    seen = torch.einsum("bij,bj->bi", turned, filmed - moved)
    assert seen[:, :2].abs().max() < 1e-3
    assert (seen[:, 2] > 1).all()


@pytest.mark.parametrize(("layout", "driven"), [("street", True), ("tunnel", True), ("forest", False)])
def test_roads_are_driven_along_and_forests_are_not(layout: str, driven: bool) -> None:
    config = replace(PRESETS["flow-small"], layouts={layout: 1.0}, camera_still=0.0, photos=0.0)
    scene = draw_scenes(config, 3, range(40), (16, 24))
    assert scene.second is not None
    step = ((scene.second.position - scene.position)[:, None] @ scene.rotation.transpose(-1, -2))[:, 0]
    ahead = step[:, 2] > 0.8 * step.norm(dim=-1)
    assert (ahead.float().mean() > 0.55) == driven
