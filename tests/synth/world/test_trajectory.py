"""Between the frames everything is where its arc takes it."""

from dataclasses import replace

import pytest
import torch

from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.rotations import axis_and_angle, axis_rotation
from matchattention.synth.world.scene import Scene, draw_scenes
from matchattention.synth.world.trajectory import camera_at, solids_at


@pytest.fixture(scope="module")
def scene() -> Scene:
    rooms = replace(PRESETS["flow"], layouts={"room": 0.5, "tabletop": 0.5}, photos=0.0)
    config = replace(rooms, still=0.0, camera_still=0.0, limbs=(0.0, 0.7), zoom=1.0)
    return draw_scenes(config, 4, [0, 1, 2], (32, 64))


def at(scene, *moments):
    return torch.tensor(moments).expand(len(scene.lens), -1)


def test_angles_and_axes_come_back():
    generator = torch.Generator().manual_seed(0)
    axis = torch.nn.functional.normalize(torch.randn(20, 3, generator=generator), dim=-1)
    angle = torch.rand(20, generator=generator) * 3.0 + 0.01
    found_axis, found = axis_and_angle(axis_rotation(axis, angle))
    torch.testing.assert_close(found, angle, atol=1e-4, rtol=0)
    torch.testing.assert_close(found_axis, axis, atol=1e-3, rtol=0)


def test_the_ends_are_the_two_frames(scene):
    axes, centre = solids_at(scene.primitives, scene.second, at(scene, 0.0, 1.0))
    there = scene.primitives.half.prod(-1) > 0  # slots that hold something
    for moment, frame in enumerate((scene.primitives, scene.second)):
        torch.testing.assert_close(axes[:, moment][there], frame.axes[there], atol=1e-5, rtol=0)
        torch.testing.assert_close(centre[:, moment][there], frame.centre[there], atol=1e-3, rtol=1e-5)
    rotation, position, lenses = camera_at(
        scene.rotation, scene.position, scene.lens, scene.second, at(scene, 0.0, 1.0)
    )
    torch.testing.assert_close(rotation[:, 1], scene.second.rotation, atol=1e-5, rtol=0)
    torch.testing.assert_close(position[:, 1], scene.second.position)
    torch.testing.assert_close(lenses[:, 1, 0], scene.lens[:, 0] * scene.second.zoom)
    torch.testing.assert_close(lenses[:, 1, 1:], scene.lens[:, 1:])
    torch.testing.assert_close(lenses[:, 0], scene.lens)


def test_groups_stay_rigid_on_their_way(scene):
    """Midway the parts of a group are as far from each other as at the start: no chord is cut."""
    _, centre = solids_at(scene.primitives, scene.second, at(scene, 0.5))
    checked = 0
    for sample in range(len(scene.lens)):
        for group in scene.primitives.group[sample].unique().tolist():
            parts = (scene.primitives.group[sample] == group) & (scene.primitives.half[sample].prod(-1) > 0)
            if group == 0 or parts.sum() < 2:
                continue
            before = torch.pdist(scene.primitives.centre[sample][parts])
            torch.testing.assert_close(torch.pdist(centre[sample, 0][parts]), before, atol=2e-4, rtol=1e-4)
            checked += 1
    assert checked > 5


def test_a_half_turn_of_the_time_is_half_the_angle(scene):
    rotation, *_ = camera_at(scene.rotation, scene.position, scene.lens, scene.second, at(scene, 0.5))
    _, whole = axis_and_angle(scene.second.rotation @ scene.rotation.transpose(-1, -2))
    _, half = axis_and_angle(rotation[:, 0] @ scene.rotation.transpose(-1, -2))
    assert (whole > 1e-3).any()
    torch.testing.assert_close(half, whole / 2, atol=2e-4, rtol=1e-3)
