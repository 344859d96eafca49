"""The optimal transport and the estimators that read positions out of it."""

import torch

from matchattention.layers.initial import causal, expected_column, expected_pixel
from matchattention.layers.transport import FORBIDDEN, log_transport


def test_rows_and_columns_sum_to_one_with_their_bin():
    torch.manual_seed(0)
    scores = torch.randn(2, 3, 7, 7).masked_fill(~causal(7, torch.device("cpu")), FORBIDDEN)
    plan = log_transport(scores, torch.tensor(0.3), 50).exp()
    torch.testing.assert_close(plan[..., :-1, :].sum(-1), torch.ones(2, 3, 7))
    torch.testing.assert_close(plan[..., :, :-1].sum(-2), torch.ones(2, 3, 7), rtol=0, atol=1e-3)
    torch.testing.assert_close(plan[..., -1, :].sum(-1), torch.full((2, 3), 7.0), rtol=1e-4, atol=1e-3)
    above = ~causal(7, torch.device("cpu"))
    assert plan[..., :-1, :-1][..., above].max() < 1e-6


def test_a_clear_match_wins_and_the_hidden_go_to_the_bin():
    width, disparity = 9, 3
    scores = torch.full((1, 1, width, width), -20.0)
    for x in range(disparity, width):
        scores[0, 0, x, x - disparity] = 20.0
    plan = log_transport(scores, torch.tensor(0.0), 8).exp()[0, 0]
    for x in range(width):
        assert plan[x].argmax() == (x - disparity if x >= disparity else width)
    assert (plan[-1, width - disparity : width] > 0.9).all()  # right tokens no left one sees


def test_gradients_are_finite_with_forbidden_matches():
    scores = torch.randn(1, 2, 5, 5, requires_grad=True)
    masked = scores.masked_fill(~causal(5, torch.device("cpu")), FORBIDDEN)
    log_transport(masked, torch.zeros((), requires_grad=True), 8)[..., :-1, :-1].exp().sum().backward()
    assert scores.grad.isfinite().all()


def test_expected_column_reads_a_sub_token_position():
    matching = torch.zeros(1, 1, 12, 12)
    matching[0, 0, :, 4], matching[0, 0, :, 5] = 0.75, 0.25
    position = expected_column(matching)
    expected = 4.25 - torch.arange(12.0)
    torch.testing.assert_close(position[0, 0, :, 0], expected, rtol=0, atol=1e-5)
    assert (position[..., 1] == 0).all()


def test_expected_column_drops_faint_entries_and_keeps_to_the_window():
    matching = torch.full((1, 1, 12, 12), 0.01)
    matching[0, 0, :, 8] = 0.5
    matching[0, 0, :, 1] = 0.39
    torch.testing.assert_close(expected_column(matching)[0, 0, :, 0], 8 - torch.arange(12.0), rtol=0, atol=1e-4)


def test_expected_pixel_reads_both_coordinates():
    height, width = 5, 6
    matching = torch.zeros(1, 30, 30)
    matching[0, :, 3 * width + 4] = 0.5
    matching[0, :, 4 * width + 4] = 0.5
    position = expected_pixel(matching, height, width)
    assert torch.allclose(position[0, 0, 0], torch.tensor([4.0, 3.5]))
    assert torch.allclose(position[0, 4, 5], torch.tensor([-1.0, -0.5]))


def test_maps_smaller_than_the_estimators_window():
    assert expected_column(torch.ones(1, 1, 1, 1)).abs().max() == 0
    assert expected_pixel(torch.ones(1, 2, 2) / 2, 1, 2).isfinite().all()


def test_as_many_alternations_as_asked_for():
    """Sinkhorn without logarithms, alternation by alternation."""
    torch.manual_seed(0)
    scores, bin_score = torch.randn(4, 5, dtype=torch.float64), torch.tensor(0.2, dtype=torch.float64)
    kernel = torch.full((5, 6), 0.2, dtype=torch.float64).exp()
    kernel[:4, :5] = scores.exp()
    rows, columns = torch.ones(5, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    rows[-1], columns[-1] = 5, 4
    u = torch.ones(5, dtype=torch.float64)
    for iterations in (1, 2, 3):
        v = columns / (u @ kernel)
        u = rows / (kernel @ v)
        found = log_transport(scores, bin_score, iterations).exp()
        torch.testing.assert_close(found, u[:, None] * kernel * v)


def test_a_left_token_may_match_its_own_column_and_those_to_the_left():
    assert causal(3, torch.device("cpu")).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
