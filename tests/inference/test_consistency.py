"""Occlusion and confidence against a scene where both are known."""

import numpy as np
import pytest
import torch

from matchattention.inference.consistency import judge


def fields(width: int = 60, far: float = 4.0, near: float = 12.0) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Disparity fields of a near box before a far wall, and the true occlusion of the left view."""
    left, right = np.full((8, width), far), np.full((8, width), far)
    left[:, 30:40] = near
    right[:, 30 - int(near) : 40 - int(near)] = near
    hidden = np.zeros((8, width), bool)
    hidden[:, : int(far)] = True  # out of view
    hidden[:, 22:30] = True  # behind the box: the wall left of it, by the difference of the disparities
    zeros = np.zeros_like(left)
    stacked = [np.stack([-left, zeros], -1), np.stack([right, zeros], -1)]
    return *(torch.tensor(field, dtype=torch.float32) for field in stacked), hidden


def test_occlusion_is_exact_where_the_fields_are() -> None:
    first, second, hidden = fields()
    occlusion, confidence = judge(first, second)
    np.testing.assert_array_equal(occlusion.numpy(), hidden)
    assert confidence.dtype == torch.float32
    np.testing.assert_allclose(confidence.numpy()[~hidden], 1)
    assert float(confidence[:, :3].max()) == 0
    assert float(confidence[:, 23:29].max()) < 0.05


def test_confidence_falls_with_the_disagreement() -> None:
    first, second, _ = fields(near=4.0)
    for offset in (0.0, 0.5, 1.0, 3.0):
        shifted = second.clone()
        shifted[..., 0] += offset
        occlusion, confidence = judge(first, shifted)
        assert float(confidence[4, 30]) == pytest.approx(np.exp(-offset / 2), rel=1e-5)
        assert bool(occlusion[4, 30]) == (offset > 1.6)


def test_half_a_pixel_beyond_the_border_is_still_in_view() -> None:
    field = torch.zeros(4, 10, 2)
    field[..., 0] = -0.4
    occlusion, confidence = judge(field, -field)
    assert not occlusion.any()
    torch.testing.assert_close(confidence, torch.ones(4, 10))


def test_flow_counts_both_directions_of_motion_and_broken_fields_are_hopeless() -> None:
    forward = torch.tensor([2.0, -3.0]).expand(20, 20, 2).clone()
    occlusion, _ = judge(forward, -forward)
    assert not occlusion[3:, :18].any()
    assert occlusion[:3].all()
    assert occlusion[:, 18:].all()
    forward[10, 10] = float("nan")
    occlusion, confidence = judge(forward, -torch.nan_to_num(forward))
    assert occlusion[10, 10]
    assert confidence[10, 10] == 0


def test_blocks_of_rows_leave_no_trace(monkeypatch) -> None:
    from matchattention.inference import consistency

    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 30, 24, 2, generator=generator)
    whole = judge(first, second)
    monkeypatch.setattr(consistency, "_ROWS", 7)
    for expected, got in zip(whole, judge(first, second)):
        torch.testing.assert_close(expected, got)


@pytest.mark.parametrize(("displacement", "hidden"), [(10.0, True), (200.0, False)])
def test_long_matches_may_disagree_more(displacement: float, hidden: bool) -> None:
    """3 px apart: more than 1.5 px and 2 % of 10, less than 1.5 px and 2 % of 200."""
    first = torch.zeros(2, 260, 2)
    first[..., 0] = -displacement
    second = -first
    second[..., 0] += 3.0
    occlusion, _ = judge(first, second)
    assert bool(occlusion[0, 250]) == hidden
