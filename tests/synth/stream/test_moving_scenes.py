"""Flow pairs: exact both ways, and motions from none to far."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from matchattention.data.batch import Batch
from matchattention.synth.photos.moving_photos import MovingPhotoConfig, MovingPhotoStream
from matchattention.synth.sensor.config import PRESETS as SENSORS
from matchattention.synth.sensor.motion_blur import motion_blur
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS

SIZE = (64, 128)


@pytest.fixture(scope="module")
def scenes() -> Batch:
    config = replace(PRESETS["flow"], samples=1, shadow_size=32, sensor="clean", photos=0.0, blur=(0.0, 0.1, 0.7))
    return SceneStream(config, SIZE, 16, 1, "cpu", workers=0).next()


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


@pytest.mark.parametrize("source", ["scenes", "photos"])
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
        assert (apart[hidden] < 1).float().mean() < 0.25


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
    batch = SceneStream(config, (32, 64), 4, 3, "cpu", workers=0).next()
    assert batch.field0.abs().max() < 1e-3
    assert batch.occluded0.float().mean() < 0.02


class TestBlur:
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
