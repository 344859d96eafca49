"""Sampling at the match, and the views' agreement."""

import torch
import torch.nn.functional as F

from matchattention.layers.consistency import disagreement, sample_at


def test_sampling_is_corner_aligned_with_zeros_outside():
    torch.manual_seed(0)
    field = torch.randn(2, 6, 8, 3, dtype=torch.float64)
    position = torch.rand(2, 5, 4, 2, dtype=torch.float64) * torch.tensor([12.0, 9.0], dtype=torch.float64) - 2
    normalised = position / torch.tensor([7.0, 5.0], dtype=torch.float64) * 2 - 1
    expected = F.grid_sample(field.permute(0, 3, 1, 2), normalised, align_corners=True).permute(0, 2, 3, 1)
    torch.testing.assert_close(sample_at(field, position), expected)


def test_consistent_views_agree_where_both_see():
    field = torch.zeros(2, 4, 20, 2)
    field[0, ..., 0], field[1, ..., 0] = -3, 3
    gap = disagreement(field)
    assert (gap[0, :, 3:] == 0).all()
    assert (gap[1, :, :17] == 0).all()
    assert (gap[0, :, :3, 0] == -3).all()  # out of view: nothing there answers
