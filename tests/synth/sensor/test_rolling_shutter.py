"""Rows are exposed one after another, and matches are where their row sees them."""

import torch
import torch.nn.functional as F

from matchattention.synth.sensor.rolling_shutter import rolling_shutter

HEIGHT, WIDTH = 48, 96


def moving_wall(u: float, v: float) -> tuple[torch.Tensor, ...]:
    """A smooth wall that moves by (u, v), both frames cut out of one canvas."""
    noise = torch.rand(1, 3, 12, 20, generator=torch.Generator().manual_seed(0))
    canvas = F.interpolate(noise, size=(HEIGHT + 40, WIDTH + 40), mode="bicubic", align_corners=True)
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")

    def frame(time: float) -> torch.Tensor:
        place = torch.stack((x + 20 - u * time, y + 20 - v * time), -1)
        grid = place * 2 / torch.tensor([WIDTH + 39, HEIGHT + 39]) - 1
        return F.grid_sample(canvas, grid[None], align_corners=True)

    image = torch.stack((frame(0.0), frame(1.0)), 1)
    field = torch.tensor([[u, v], [-u, -v]])[None, :, None, None].expand(1, 2, HEIGHT, WIDTH, 2).contiguous()
    yes = torch.ones(1, 2, HEIGHT, WIDTH, dtype=torch.bool)
    outside = torch.zeros_like(yes)
    return image, field, yes, outside


def test_the_field_of_a_moving_wall_is_the_closed_form():
    u, v, readout = 8.0, 6.0, 0.5
    rolled = rolling_shutter(*moving_wall(u, v), torch.tensor([readout]))
    down = v / (1 - v * readout / HEIGHT)
    across = u * (1 + readout * down / HEIGHT)
    inner = rolled.field[0, 0, 8:-16, 8:-16]
    torch.testing.assert_close(inner, torch.tensor([across, down]).expand_as(inner), atol=1e-3, rtol=0)
    torch.testing.assert_close(rolled.field[0, 1, 16:-8, 16:-8], -inner, atol=1e-3, rtol=0)
    assert rolled.valid[0, :, 8:-8, 8:-8].all()


def test_rows_see_their_own_moment_and_matches_look_alike():
    image, field, valid, occluded = moving_wall(8.0, 0.0)
    rolled = rolling_shutter(image, field, valid, occluded, torch.tensor([0.5]))
    last = HEIGHT - 1
    late = 0.5 * (last + 0.5 - HEIGHT / 2) / HEIGHT  # of the last row
    shifted = F.grid_sample(
        image[:, 0, :, last:, :].expand(-1, -1, 2, -1),
        torch.stack(((torch.arange(WIDTH) - 8.0 * late) * 2 / (WIDTH - 1) - 1, torch.zeros(WIDTH)), -1)[None, None],
        align_corners=True,
    )[0, :, 0]
    torch.testing.assert_close(rolled.image[0, 0, :, last, 8:-8], shifted[:, 8:-8], atol=0.02, rtol=0)
    place = (
        torch.stack(torch.meshgrid(torch.arange(WIDTH), torch.arange(HEIGHT), indexing="xy"), -1) + rolled.field[0, 0]
    )
    grid = place * 2 / torch.tensor([WIDTH - 1, HEIGHT - 1]) - 1
    warped = F.grid_sample(rolled.image[:, 1], grid[None], align_corners=True)[0]
    seen = (rolled.valid & ~rolled.occluded)[0, 0]
    seen[:, :8] = seen[:, -16:] = False
    assert seen.float().mean() > 0.5
    assert (warped - rolled.image[0, 0]).abs().amax(0)[seen].max() < 0.03


def test_no_readout_changes_nothing():
    image, field, valid, occluded = moving_wall(5.0, -3.0)
    rolled = rolling_shutter(image, field, valid, occluded, torch.zeros(1))
    torch.testing.assert_close(rolled.image, image, atol=1e-5, rtol=0)
    torch.testing.assert_close(rolled.field, field)
    assert torch.equal(rolled.valid, valid)


def test_what_left_the_frame_is_hidden():
    rolled = rolling_shutter(*moving_wall(30.0, 0.0), torch.tensor([0.3]))
    there = torch.arange(WIDTH) + rolled.field[0, 0, ..., 0]
    beyond = rolled.valid[0, 0] & (there > WIDTH)
    assert beyond.any()
    assert rolled.occluded[0, 0][beyond].all()
