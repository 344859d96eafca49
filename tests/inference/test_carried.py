"""The warm start of flow videos: what moves is expected to go on."""

import torch

from matchattention.inference.carried import carried, splat


def field(height, width, u, v):
    return torch.tensor([float(u), float(v)]).expand(height, width, 2).clone()


def test_a_frame_that_moves_as_one_goes_on():
    fields = torch.stack((field(20, 30, 4, -2), field(20, 30, -4, 2)))
    torch.testing.assert_close(carried(fields), fields)


def test_a_square_is_expected_where_it_will_be():
    """The square moves 6 px a frame before a wall that moves 1 px down."""
    forward, backward = field(24, 40, 0, 1), field(24, 40, 0, -1)
    forward[8:16, 4:12] = torch.tensor([6.0, 0.0])
    backward[8:16, 10:18] = torch.tensor([-6.0, 0.0])
    first, back = carried(torch.stack((forward, backward)))
    expected = field(24, 40, 0, 1)
    expected[8:16, 10:18] = torch.tensor([6.0, 0.0])
    torch.testing.assert_close(first, expected)
    torch.testing.assert_close(back[9:15, 19:23], field(6, 4, -6, 0), atol=0.1, rtol=0)  # over the wall
    torch.testing.assert_close(back[2:7, 2:38], field(5, 36, 0, -1))
    # What the square uncovers takes the wall's motion or a mean with the square's, never nothing at all.
    uncovered = back[9:15, 10:16]
    assert (uncovered[..., 1] <= 0).all()
    assert (uncovered[..., 0] <= 0).all()
    assert (uncovered.abs().sum(-1) > 0.3).all()


def test_half_pixels_are_shared_and_equals_meet_in_their_mean():
    values = torch.tensor([[[8.0], [0.0], [0.0], [2.0]]])
    motion = torch.tensor([[[1.5, 0.0], [40.0, 0.0], [40.0, 0.0], [-1.5, 0.0]]])
    moved = splat(values, motion)
    # The first and the last value both lie half on column 1 and half on column 2.
    torch.testing.assert_close(moved[0, 1:3, 0], torch.tensor([5.0, 5.0]))


def test_nothing_left_in_the_frame_is_no_motion():
    fields = torch.stack((field(8, 8, 100, 0), field(8, 8, -100, 0)))
    assert torch.equal(carried(fields)[1], torch.zeros(8, 8, 2))


def test_broken_numbers_do_not_spread():
    fields = torch.zeros(2, 9, 11, 2)
    fields[1, 4, 4] = torch.nan
    fields[1, 2, 2] = torch.inf
    assert carried(fields).isfinite().all()
