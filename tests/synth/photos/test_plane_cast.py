"""Casting moved planes: closed-form cases, and the kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from matchattention.synth.dice import Dice
from matchattention.synth.photos import plane_cast
from matchattention.synth.photos.moving_photos import MovingPhotoConfig, draw_layers

HEIGHT, WIDTH = 24, 40


def places(batch: int) -> torch.Tensor:
    """(B, HEIGHT, WIDTH, 2): every pixel's place, from the centre over the width."""
    x = (torch.arange(WIDTH) - 0.5 * (WIDTH - 1)) / WIDTH
    y = (torch.arange(HEIGHT)[:, None] - 0.5 * (HEIGHT - 1)) / WIDTH
    return torch.stack(torch.broadcast_tensors(x, y), -1)[None].expand(batch, -1, -1, -1)


def still(planes: int, sheet_width: int = WIDTH) -> list[torch.Tensor]:
    """One pair whose planes stand still: labels without pieces, planes shown, no bars, motions."""
    labels = torch.full((1, HEIGHT, sheet_width), 255, dtype=torch.uint8)
    shown = torch.ones(1, planes, dtype=torch.bool)
    bars = torch.tensor([[1.0, 0.0, 0.1, 0.0, 1.0, 0.0]])  # of no thickness
    return [labels, shown, bars, torch.eye(3).expand(1, planes, 3, 3).clone()]


def test_a_piece_is_seen_where_it_has_moved_to_and_covers_those_behind():
    labels, shown, bars, back = still(4)
    labels[0, 4:8, 10:15] = 0  # piece 1
    labels[0, 6:20, 5:30] = torch.where(labels[0, 6:20, 5:30] == 0, 0, 1)  # piece 2, where piece 1 is not
    back[0, 1, 0, 2] = -6 / WIDTH  # piece 1 has moved 6 px to the right
    back[0, 2, 1, 2] = 2 / WIDTH  # piece 2 has moved 2 px up
    top, found = plane_cast.cast_torch(labels, shown, bars, back, places(1))
    wanted = torch.zeros(HEIGHT, WIDTH, dtype=torch.long)
    wanted[4:8, 16:21] = 1
    wanted[4:18, 5:30] = torch.where(labels[0, 6:20, 5:30] == 1, 2, wanted[4:18, 5:30])
    assert torch.equal(top[0], wanted)
    offset = torch.tensor([[0.0, 0.0], [-6 / WIDTH, 0.0], [0.0, 2 / WIDTH]])[top]
    torch.testing.assert_close(found, places(1) + offset)


def test_pieces_end_with_their_sheet_and_planes_behind_the_camera_are_not_drawn():
    labels, shown, bars, back = still(3)
    labels[:] = 0  # piece 1 covers its sheet
    back[0, 1, 0, 2] = 10 / WIDTH  # and has moved 10 px to the left
    top, _ = plane_cast.cast_torch(labels, shown, bars, back, places(1))
    assert (top[0, :, : WIDTH - 10] == 1).all()
    assert (top[0, :, WIDTH - 10 :] == 0).all()  # no mirror image of it
    back[0, 1, 2, 2] = -1.0
    top, _ = plane_cast.cast_torch(labels, shown, bars, back, places(1))
    assert (top == 0).all()


def test_bars_stand_in_front_within_their_radius():
    labels, shown, bars, back = still(3)
    bars[0] = torch.tensor([1.0, 0.0, 8 / WIDTH, 2 / WIDTH, 0.2, 0.0])
    top, _ = plane_cast.cast_torch(labels, shown, bars, back, places(1))
    row = top[0, HEIGHT // 2] == 2
    assert row.nonzero()[:, 0].tolist() == [12, 13, 20, 21]
    assert (top[0, 0] == 0).all()
    shown[0, 2] = False
    assert (plane_cast.cast_torch(labels, shown, bars, back, places(1))[0] == 0).all()


@pytest.mark.parametrize("seed", range(2))
def test_kernel_equals_the_reference(seed: int):
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator().manual_seed(seed)
    photo = torch.rand(2, 3, HEIGHT, WIDTH + 16, generator=generator)
    layers = draw_layers(Dice(seed, [0, 1], "cpu"), MovingPhotoConfig(bars=1.0, pieces=1.0), photo, (HEIGHT, WIDTH))
    labels = torch.randint(0, 15, (2, HEIGHT // 4, WIDTH // 4 + 4), generator=generator, dtype=torch.uint8)
    labels = labels.repeat_interleave(4, 1).repeat_interleave(4, 2)
    arguments = (labels, layers.shown, layers.bars, layers.back[:, 1], places(2))
    top, found = plane_cast.cast_torch(*arguments)
    got_top, got_found = plane_cast.cast_triton(*(part.to(device) for part in arguments))
    same = got_top.cpu() == top
    assert same.float().mean() > 0.995  # a label's border may fall on either side of a rounding
    assert len(top.unique()) > 6
    torch.testing.assert_close(got_found.cpu()[same], found[same], atol=1e-5, rtol=1e-5)
