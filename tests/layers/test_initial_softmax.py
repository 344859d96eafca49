"""The released networks' initial estimate beside the same written with loops."""

from __future__ import annotations

import pytest
import torch

from matchattention.layers import initial_softmax


def _by_loops(matching: list[list[float]], height: int, width: int) -> list[list[float]]:
    """Offset of each token: mean of the likely tokens in the 5x5 around the best 5x5 block of the matrix."""
    count = height * width
    found = []
    for query in range(count):
        blocks = [
            sum(
                matching[a][b]
                for a in range(max(query - 2, 0), min(query + 3, count))
                for b in range(max(key - 2, 0), min(key + 3, count))
            )
            for key in range(count)
        ]
        y, x = divmod(max(range(count), key=blocks.__getitem__), width)
        x, y = max(min(x, width - 3), 2), max(min(y, height - 3), 2)
        share, sum_x, sum_y = 0.0, 0.0, 0.0
        for there_y in range(y - 2, min(y + 3, height)):
            for there_x in range(x - 2, min(x + 3, width)):
                p = matching[query][there_y * width + there_x]
                if p >= 1 / count:
                    share, sum_x, sum_y = share + p, sum_x + p * there_x, sum_y + p * there_y
        found.append([sum_x / max(share, 1e-20) - query % width, sum_y / max(share, 1e-20) - query // width])
    return found


@pytest.mark.parametrize(("height", "width"), [(7, 8), (3, 8), (7, 4), (3, 4)])
def test_flow_equals_its_loops(height: int, width: int) -> None:
    generator = torch.Generator().manual_seed(height * width)
    scores = 3 * torch.randn(2, height * width, height * width, generator=generator)
    matching = scores.softmax(-1)
    found = initial_softmax._flow(matching, height, width).flatten(1, 2)
    for view in range(2):
        expected = torch.tensor(_by_loops(matching[view].tolist(), height, width))
        torch.testing.assert_close(found[view], expected, atol=1e-4, rtol=0)


def test_stereo_sees_one_disparity_from_both_sides() -> None:
    """Scores that peak at a disparity of 2 tokens give -2 left and +2 right, wherever the match is in view."""
    scores = torch.full((1, 1, 12, 12), -20.0)
    for x in range(2, 12):
        scores[0, 0, x, x - 2] = 20.0
    left, right = initial_softmax._stereo(scores)
    torch.testing.assert_close(left[0, 4:, 0], torch.full((8,), -2.0), atol=1e-3, rtol=0)
    torch.testing.assert_close(right[0, :8, 0], torch.full((8,), 2.0), atol=1e-3, rtol=0)
    assert (left[..., 1] == 0).all()
