"""Occlusion and confidence against a scene where both are known."""

import numpy as np
import pytest
import torch

from matchattention.inference import consistency
from matchattention.inference.consistency import judge
from matchattention.layers.consistency import sample_at
from matchattention.layers.tokens import pixel_grid


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


def random_fields(batch: int, seed: int, vertical: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Fields that point everywhere: far out of view, exactly to the border, to nowhere."""
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(batch, 9, 31, 2, generator=generator) * 6 for _ in range(2))
    first[..., 1] *= vertical
    second[..., 1] *= vertical
    first[:, 0, 0], first[:, 1, 1], first[:, 2, 30] = torch.nan, torch.inf, 0.4
    first[:, 3, 30], second[:, 4, 4] = torch.tensor([-30.4, 0.0]), torch.nan
    if vertical == 0:  # without a trace of y the faster way along rows is taken
        first[..., 1], second[..., 1] = 0, 0
        # In the top row alone: the other ways look at the row below too, where NaN times a share of zero is NaN.
        second[:, 4, 4, 0], second[:, 0, 4, 0] = 1.0, torch.nan
    return first, second


@pytest.mark.parametrize("vertical", [0.0, 0.5], ids=["stereo", "flow"])
def test_a_batch_is_judged_like_its_pairs(vertical: float) -> None:
    first, second = random_fields(3, 0, vertical)
    occlusion, confidence = judge(first, second)
    for index in range(3):
        alone = judge(first[index], second[index])
        assert torch.equal(occlusion[index], alone[0])
        assert torch.equal(confidence[index], alone[1])


@pytest.mark.parametrize("vertical", [0.0, 0.5], ids=["stereo", "flow"])
def test_bilinear_sampling_is_the_networks(vertical: float) -> None:
    first, second = random_fields(2, 1, vertical)
    grid = pixel_grid(9, 31, first.device)
    there = grid + first
    inside = ((there > -0.5) & (there < torch.tensor([30.5, 8.5]))).all(-1)
    at = there.nan_to_num(0, 0, 0).clamp(min=0).minimum(torch.tensor([30.0, 8.0]))
    gap = (first + sample_at(second, at)).norm(dim=-1)
    occlusion, confidence = judge(first, second)
    agrees = inside & (gap <= 1.5 + 0.02 * first.norm(dim=-1))
    assert (occlusion == ~agrees).all()
    expected = torch.where(inside, torch.exp(-gap / 2), 0).nan_to_num(0)
    torch.testing.assert_close(confidence, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("vertical", [0.0, 0.5], ids=["stereo", "flow"])
def test_the_kernel_is_the_plain_computation(vertical: float) -> None:
    pytest.importorskip("triton")
    from matchattention.runtime.kernels.agreement import agreement

    device = "cuda" if torch.cuda.is_available() else "cpu"
    first, second = random_fields(2, 2, vertical)
    occlusion, confidence = agreement(first.to(device), second.to(device), 1.5, 0.02, 2.0)
    plain = judge(first, second)
    assert torch.equal(occlusion.cpu(), plain[0])
    torch.testing.assert_close(confidence.cpu(), plain[1], rtol=1e-5, atol=1e-6)


def test_the_kernel_reads_nothing_below_an_image() -> None:
    """Below its last row lies the next pair's first one, here without a number in it."""
    pytest.importorskip("triton")
    from matchattention.runtime.kernels.agreement import agreement

    device = "cuda" if torch.cuda.is_available() else "cpu"
    first, second = torch.zeros(2, 4, 6, 2, device=device), torch.zeros(2, 4, 6, 2, device=device)
    second[1, 0] = torch.nan
    occlusion, confidence = agreement(first, second, 1.5, 0.02, 2.0)
    assert not occlusion[0].any()
    assert (confidence[0] == 1).all()


def test_rows_are_judged_in_pieces(monkeypatch) -> None:
    first, second = random_fields(2, 3, 0.5)
    whole = judge(first, second)
    monkeypatch.setattr(consistency, "_ROWS", 4)
    for found, expected in zip(judge(first, second), whole):
        assert torch.equal(found, expected)
