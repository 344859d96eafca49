"""Flow pairs: exact both ways, and motions from none to far."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from matchattention.data.batch import Batch
from matchattention.synth.photos.moving_photos import MovingPhotoConfig, MovingPhotoStream
from matchattention.synth.rays.tables import photo_pyramid
from matchattention.synth.sensor.config import PRESETS as SENSORS
from matchattention.synth.sensor.motion_blur import motion_blur
from matchattention.synth.stream import render as rendering
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.builder import yaw_rotation
from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.scene import draw_scenes

SIZE = (64, 128)


@pytest.fixture(scope="module")
def scenes() -> Batch:
    config = replace(PRESETS["flow"], samples=1, shadow_size=32, sensor="clean", photos=0.0, blur=(0.0, 0.1, 0.7))
    return SceneStream(config, SIZE, 16, 1, "cpu", workers=0).next()


@pytest.fixture(scope="module")
def rolling() -> Batch:
    config = replace(
        PRESETS["flow-rolling"], samples=1, shadow_size=16, sensor="clean", photos=0.0, blur=(0.0, 0.1, 0.7)
    )
    return SceneStream(config, (32, 64), 5, 2, "cpu", workers=0).next()


@pytest.fixture(scope="module")
def photos() -> Batch:
    tiles = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    tiles = (F.interpolate(tiles, size=(64, 64), mode="bicubic").clamp(0, 1) * 255).to(torch.uint8)
    config = MovingPhotoConfig(sensor=SENSORS["clean"], blur=(0.0, 0.1, 0.7))
    return MovingPhotoStream(tiles, SIZE, 16, 1, "cpu", config=config).next()


def sampled(values, field, mode):
    """(B, C, H, W) values where the field points to."""
    height, width = field.shape[1:3]
    x = torch.arange(width) + field[..., 0]
    y = torch.arange(height)[:, None] + field[..., 1]
    grid = torch.stack((x * 2 / (width - 1) - 1, y * 2 / (height - 1) - 1), -1)
    return F.grid_sample(values, grid, mode=mode, padding_mode="border", align_corners=True)


def inside(field):
    """(B, H, W) whether the field points into the frame."""
    height, width = field.shape[1:3]
    x = torch.arange(width) + field[..., 0]
    y = torch.arange(height)[:, None] + field[..., 1]
    return (x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)


@pytest.mark.parametrize("source", ["scenes", "photos", "rolling"])
def test_visible_matches_point_back_and_hidden_ones_do_not(source, request):
    batch = request.getfixturevalue(source)
    for field, other, valid, occluded in (
        (batch.field0, batch.field1, batch.valid0, batch.occluded0),
        (batch.field1, batch.field0, batch.valid1, batch.occluded1),
    ):
        back = sampled(other.movedim(-1, 1), field, "nearest").movedim(1, -1)
        apart = (back + field).norm(dim=-1)
        visible = valid & ~occluded
        assert visible.float().mean() > 0.6
        assert apart[visible].median() < 0.1
        assert (apart[visible] < 1).float().mean() > 0.95  # the rest lies on edges
        hidden = valid & occluded & inside(field)  # what left the frame has nothing to point back from
        assert hidden.any()
        # Resampled rows are small here and their edges a pixel wide: some hidden pixels lie beside visible ones.
        assert (apart[hidden] < 1).float().mean() < (0.4 if source == "rolling" else 0.25)


def test_photos_warp_onto_each_other(photos):
    seen = photos.valid0 & ~photos.occluded0
    warped = sampled(photos.image1, photos.field0, "bilinear")
    right = (warped - photos.image0).abs().mean(1)[seen]
    wrong = (photos.image1 - photos.image0).abs().mean(1)[seen]
    assert right.median() < 0.25 * wrong.mean()


@pytest.mark.parametrize("source", ["scenes", "photos"])
def test_motions_reach_from_none_to_far(source, request):
    batch = request.getfixturevalue(source)
    share = 100 * batch.field0.norm(dim=-1) / SIZE[1]
    medians = torch.stack([motion[valid].median() for motion, valid in zip(share, batch.valid0)])
    assert medians.min() < 0.4
    assert medians.max() > 6
    assert 0.5 < medians.median() < 5
    assert torch.quantile(share[batch.valid0], 0.95) > 8  # KITTI and Sintel: 10 to 11


def test_a_still_camera_leaves_the_world_where_it_is():
    config = replace(
        PRESETS["flow"], samples=1, shadow_size=16, sensor="clean", photos=0.0, camera_still=1.0, still=1.0
    )
    batch = SceneStream(config, (32, 64), 2, 3, "cpu", workers=0).next()
    assert batch.field0.abs().max() < 1e-3
    assert batch.occluded0.float().mean() < 0.02


def test_matches_beyond_the_frame_are_true():
    """A camera that only turns moves every pixel by a homography, also out of the frame."""
    config = replace(PRESETS["flow"], samples=1, shadow_size=16, photos=0.0, blur=(0.0, 0.1, 0.7), still=1.0)
    scene = draw_scenes(config, 7, [0, 1], SIZE)
    turn = yaw_rotation(torch.full((2,), 0.3)) @ scene.rotation
    second = scene.second._replace(rotation=turn, position=scene.position, zoom=torch.ones(2))
    rendered = rendering.render(scene._replace(second=second), config, SIZE)
    height, width = SIZE
    y, x = torch.meshgrid(torch.arange(height).float(), torch.arange(width).float(), indexing="ij")
    for sample in range(2):
        focal, cx, cy = scene.lens[sample].tolist()
        ray = torch.stack(((x - cx) / focal, (y - cy) / focal, torch.ones_like(x)), -1)
        turned = ray @ (turn[sample] @ scene.rotation[sample].T).T
        expected = turned[..., :2] / turned[..., 2:] * focal + torch.tensor([cx, cy]) - torch.stack((x, y), -1)
        valid = rendered.valid[sample, 0]
        outside = valid & ~inside(expected[None])[0]
        assert outside.sum() > 50
        torch.testing.assert_close(rendered.field[sample, 0][valid], expected[valid], atol=0.02, rtol=1e-3)
        assert rendered.occluded[sample, 0][outside & ((x + expected[..., 0]) > width)].all()


def test_clouds_stay_in_the_world_when_the_camera_turns():
    """What the truth says of the sky is what the frames show."""
    size = (48, 96)
    config = replace(PRESETS["drive"], samples=1, shadow_size=8)
    scene = draw_scenes(config, 5, [9], size)
    turned = yaw_rotation(torch.tensor([0.1])) @ scene.rotation
    second = scene.second._replace(rotation=turned, position=scene.position)
    cloudy = torch.full_like(scene.light.clouds, 0.5)
    scene = scene._replace(second=second, light=scene.light._replace(clouds=cloudy))
    with torch.no_grad():
        result = rendering.render(scene, config, size)
    first, other = result.image[:, 0], result.image[:, 1]
    field = result.field[:, 0]
    seen = inside(field) & (result.hit[:, 0] < 0) & ~result.occluded[:, 0]
    assert seen.float().mean() > 0.2
    assert field[seen].norm(dim=-1).min() > 3
    error = (sampled(other, field, "bilinear") - first).abs().mean(1)[seen].mean()
    still = (other - first).abs().mean(1)[seen].mean()
    assert error < 0.2 * still


class TestBlur:
    def test_few_moments_look_like_many(self):
        """Three moments, each blurred over its third, against twelve of the true trajectories."""
        size = (32, 64)
        config = replace(PRESETS["flow"], shadow_size=16, photos=0.0, blur=(1.0, 0.6, 0.6), camera_still=0.0)
        scene = draw_scenes(config, 11, [2], size)
        nothing = photo_pyramid(None, torch.device("cpu"))

        def exposed(moments: int, open_for: float) -> torch.Tensor:
            second = scene.second._replace(shutter=scene.second.shutter * open_for)
            centre = torch.zeros(moments, 2)
            with torch.no_grad():
                image = rendering._through_open_shutter(scene._replace(second=second), config, size, nothing, centre)
            return image.clamp(0, 4)

        true, sharp, few = exposed(12, 1.0), exposed(1, 0.0), exposed(3, 1.0)
        moved = (true - sharp).abs().mean()
        assert moved > 1e-3
        missed = (few - true).abs().mean()
        assert missed < 0.5 * moved
        assert missed < (exposed(1, 1.0) - true).abs().mean()

    def test_a_moving_bar_smears_over_a_still_wall_and_a_still_bar_stays_sharp(self):
        image = torch.zeros(2, 2, 3, 32, 64)
        image[..., 28:36] = 1.0
        depth = torch.full((2, 2, 32, 64), 10.0)
        depth[..., 28:36] = 1.0
        bar = torch.zeros(2, 32, 64, 2)
        bar[:, :, 28:36, 0] = 16.0
        wall = torch.where(bar == 0, 16.0, 0.0) * torch.tensor([1.0, 0.0])
        field = torch.stack((bar, wall))  # first pair: the bar moves; second: the wall behind it
        blurred = motion_blur(image, field, depth, torch.tensor([0.5, 0.5]))
        row = blurred[0, 0, 0, 16]
        assert 0.1 < row[26] < 0.9
        assert 0.1 < row[37] < 0.9
        assert row[20] == 0
        assert torch.equal(blurred[1, 0, 0, 16, 28:36], torch.ones(8))
        assert blurred[1, 0, 0, 16, :28].max() == 0

    def test_a_closed_shutter_changes_nothing(self):
        image = torch.rand(1, 2, 3, 20, 40)
        field = torch.randn(1, 2, 20, 40, 2) * 9
        same = motion_blur(image, field, torch.rand(1, 2, 20, 40) + 1, torch.zeros(1))
        torch.testing.assert_close(same, image)


def test_a_shutter_is_open_evenly_around_each_frames_moment(monkeypatch):
    config = replace(PRESETS["flow"], samples=4, shadow_size=8, photos=0.0, blur=(1.0, 0.8, 0.8))
    scene = draw_scenes(config, 1, range(1), (16, 32))
    asked = []
    views_at = rendering.views_at

    def recorded(scenes, moments):
        asked.append(moments)
        return views_at(scenes, moments)

    monkeypatch.setattr(rendering, "views_at", recorded)
    rendering.render(scene, config, (16, 32))
    (moments,) = [m for m in asked if len(m) == 4]  # one for each sample of a pixel
    torch.testing.assert_close(moments[:, 0], 0.8 * torch.tensor([-0.375, -0.125, 0.125, 0.375]))
    torch.testing.assert_close(moments[:, 1], 1 + moments[:, 0])
