"""Each term of the objective: values by hand, gradients, masks."""

from __future__ import annotations

import math

import pytest
import torch

from matchattention.data.batch import Batch
from matchattention.training.losses import (
    LossConfig,
    cross_terms,
    final_term,
    forward_backward,
    initial_term,
    masked_mean,
    non_occluded,
    self_terms,
    step_weights,
    total_loss,
)
from matchattention.training.sources import ShiftedCards
from matchattention.training.targets import stacked_truth
from tests.training.networks import Initial, Matches, Step, TinyNetwork

NAN = float("nan")


def _row(*x: float) -> torch.Tensor:
    """(1, 1, W, 2) horizontal offsets."""
    values = torch.tensor(x).view(1, 1, -1)
    return torch.stack((values, torch.zeros_like(values)), -1)


def _stereo(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((x, torch.zeros_like(x)), -1)


def test_masked_mean_ignores_masked_nans_and_empty_masks():
    values = torch.tensor([1.0, NAN, 3.0])
    assert masked_mean(values, torch.tensor([True, False, True])).item() == 2.0
    assert masked_mean(values, torch.zeros(3, dtype=torch.bool)).item() == 0.0


def test_self_term_is_plain_l1_in_pixels():
    positions = torch.stack((_row(-1.0, -1.0), _row(0.0, -2.0)))  # two steps, tokens of 8 px
    truth, valid = _row(-8.0, -4.0), torch.tensor([[[True, True]]])
    assert self_terms(positions, truth, valid, 8).tolist() == [2.0, 10.0]
    valid = torch.tensor([[[True, False]]])
    assert self_terms(positions, truth, valid, 8).tolist() == [0.0, 8.0]


def test_forward_backward_by_hand():
    # Left token 2 points to right token 1, which points back by 1: consistent. Left token 3 points to
    # right token 2, which points to 5: off by 2. Left token 0 points out of view.
    left, right = _row(-1.0, -0.5, -1.0, -1.0), _row(0.0, 1.0, 3.0, 0.0)
    distance, visible = forward_backward(torch.cat((left, right)))
    assert distance[0, 0].tolist() == pytest.approx([1.0, 0.0, 0.0, 2.0])
    assert visible[0, 0].tolist() == [False, True, True, True]
    assert non_occluded(distance, visible, 1.0)[0, 0].tolist() == [False, True, True, False]


def test_cross_terms_by_hand():
    left, right = _row(-1.0, -1.0, -1.0, -1.0), _row(1.0, 1.0, 4.0, 1.0)
    positions = torch.cat((left, right)).unsqueeze(0)  # (1, 2, 1, 4, 2), tokens of 4 px
    truth = torch.cat((_row(0.0, -6.0, -4.0, -4.0), _row(4.0, 4.0, 4.0, 4.0)))
    valid = torch.ones(2, 1, 4, dtype=torch.bool)
    valid[1] = False
    l1, consistency, visible = cross_terms(positions, truth, valid, 4, threshold=1.0)
    # Token 0 is out of view, token 3 meets 4 there: only 1 and 2 count, of four valid ones.
    assert l1.item() == pytest.approx((2.0 + 0.0) / 4)
    assert consistency.item() == 0.0
    assert visible.item() == pytest.approx(2 / 4)


def test_consistency_is_in_pixels():
    positions = torch.cat((_row(0.0, -1.0, -1.0), _row(1.25, 1.25, 0.0))).unsqueeze(0)  # tokens of 8 px
    valid = torch.tensor([[[False, True, True]], [[False, False, False]]])
    _, consistency, _ = cross_terms(positions, positions[0] * 8, valid, 8, threshold=1.0)
    assert consistency.item() == pytest.approx(0.25 * 8)  # tokens 1 and 2 of the left view miss by a quarter


def test_steps_of_a_scale_are_independent():
    torch.manual_seed(0)
    positions = torch.randn(3, 4, 5, 6, 2)
    truth, valid = torch.randn(4, 5, 6, 2), torch.rand(4, 5, 6) > 0.3
    together = cross_terms(positions, truth, valid, 8, 1.0)
    for index in range(3):
        alone = cross_terms(positions[index, None], truth, valid, 8, 1.0)
        for a, b in zip(together, alone):
            assert a[index].item() == pytest.approx(b[0].item(), rel=1e-5)


def test_mask_carries_no_gradient():
    position = torch.cat((_row(-1.2, -0.7, -1.1), _row(0.4, 0.8, 1.3))).requires_grad_()
    distance, visible = forward_backward(position)
    assert distance.requires_grad
    assert not non_occluded(distance, visible, 1.0).requires_grad


def test_cross_terms_gradients_match_finite_differences():
    # Fields without slope: where the other view is read has no influence, the values have.
    position = torch.full((1, 2, 2, 4, 2), 0.4, dtype=torch.float64)
    position[:, 1] = 0.45
    position.requires_grad_()
    truth = torch.full((2, 2, 4, 2), 9.0, dtype=torch.float64)
    valid = torch.ones(2, 2, 4, dtype=torch.bool)

    def terms(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return cross_terms(value, truth, valid, 4, threshold=100.0)[:2]

    assert torch.autograd.gradcheck(terms, (position,))


def test_consistency_pulls_the_two_views_together():
    position = torch.cat((_row(0.0, -1.0, -1.0), _row(1.3, 1.3, 0.0))).unsqueeze(0).requires_grad_()
    valid = torch.ones(2, 1, 3, dtype=torch.bool)
    _, consistency, _ = cross_terms(position, position.detach()[0] * 4, valid, 4, 1.0)
    consistency.sum().backward()
    assert position.grad is not None
    # Left points back too little for the right one: both sums are positive, both shrink by descending.
    assert (position.grad[0, 0, 0, 1:, 0] > 0).all()
    assert (position.grad[0, 1, 0, :2, 0] > 0).all()


def test_final_term():
    field, truth = _row(-1.0, -5.0, NAN), _row(-2.0, -2.0, 0.0)
    valid = torch.tensor([[[True, True, False]]])
    assert final_term(field, truth, valid).item() == 2.0


def test_step_weights_grow_and_sum_to_one_per_scale():
    weights = step_weights([32, 32, 16, 16, 16], first=0.2)
    assert sum(weights[:2]) == pytest.approx(1)
    assert sum(weights[2:]) == pytest.approx(1)
    assert weights[1] / weights[0] == pytest.approx(5 ** (1 / 4))
    assert weights[3] / weights[2] == pytest.approx(weights[4] / weights[3])


def _uniform_rows(tokens: int) -> torch.Tensor:
    """Stereo log matching (1, 1, w+1, w+1): uniform over what a left token may match, its bin included."""
    scores = torch.zeros(1, 1, tokens + 1, tokens + 1)
    forbidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores[0, 0, :-1, :-1][forbidden] = -math.inf
    return scores


class TestInitialTerm:
    config = LossConfig(centre_share=1.0, laplace_width=0.05)

    def _truth(self, disparity: float, width: int = 96):
        shape = (1, 32, width)
        images = torch.zeros(1, 3, 32, width)
        x = torch.full(shape, disparity)
        zero, known = torch.zeros(shape), torch.ones(shape, dtype=torch.bool)
        batch = Batch(images, images, torch.stack((-x, zero), -1), torch.stack((x, zero), -1), known, known)
        return stacked_truth(batch, 32, width)

    def test_stereo_by_hand(self):
        # Three tokens, one token of disparity: left 0 and right 2 are out of view and belong to the bin.
        truth = self._truth(32.0)
        scores = torch.full((1, 1, 4, 4), -50.0)
        right = [(0, 3), (1, 0), (2, 1), (3, 2)]
        for row, column in right:
            scores[0, 0, row, column] = -0.1
        assert initial_term(scores, truth, 32, self.config).item() == pytest.approx(0.1, abs=1e-3)
        scores[0, 0, 1, 0] = -2.1  # a row and a column: two of six tokens lose two nats
        assert initial_term(scores, truth, 32, self.config).item() == pytest.approx(0.1 + 4 / 6, abs=1e-3)

    def test_forbidden_matches_do_not_poison_the_gradient(self):
        scores = _uniform_rows(3).requires_grad_()
        loss = initial_term(scores, self._truth(10.0), 32, LossConfig())
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(scores.grad).all()

    def test_smallest_at_the_target_itself(self):
        torch.manual_seed(0)
        truth = self._truth(40.0)
        config = LossConfig()
        scores = _uniform_rows(3).clone()
        finite = torch.isfinite(scores)
        raw = torch.zeros_like(scores).requires_grad_()
        optimizer = torch.optim.Adam([raw], lr=0.1)
        for _ in range(200):
            log_rows = torch.where(finite, raw, -math.inf).log_softmax(-1)
            optimizer.zero_grad()
            loss = initial_term(log_rows, truth, 32, config)
            loss.backward()
            optimizer.step()
        assert log_rows[0, 0, 2].argmax().item() in (0, 1)  # 40 px is between one and two tokens
        assert log_rows[0, 0, 0].argmax().item() == 3  # out of view

    def test_flow(self):
        shape = (1, 64, 64)
        field = torch.zeros(*shape, 2)
        field[..., 0] = 32.0
        known = torch.ones(shape, dtype=torch.bool)
        images = torch.zeros(1, 3, 64, 64)
        truth = stacked_truth(Batch(images, images, field, -field, known, known), 64, 64)
        scores = torch.full((1, 5, 5), -50.0)
        for row, column in ((0, 1), (2, 3), (1, 4), (3, 4), (4, 0), (4, 2)):
            scores[0, row, column] = -0.2
        assert initial_term(scores, truth, 32, self.config).item() == pytest.approx(0.2, abs=1e-3)


def _perfect(batch: Batch, scales: tuple[int, ...] = (32, 16, 8, 4)) -> Matches:
    height, width = batch.field0.shape[1:3]
    field = torch.cat((batch.field0, batch.field1))
    truth = stacked_truth(batch, height, width)
    steps = []
    for scale in scales:
        first = scale // 2
        position = truth.field[:, first::scale, first::scale] / scale
        steps += [Step(scale, "self", position), Step(scale, "cross", position)]
    initial = torch.zeros(field.shape[0], height // 32, width // 32, 2)
    return Matches(field, initial, tuple(steps), Initial(initial, None))


def test_total_is_zero_for_the_truth_and_weighted_otherwise():
    batch = ShiftedCards(0).batch(0, 2, 64, 96)
    matches = _perfect(batch)
    terms = total_loss(matches, batch, LossConfig(consistency_weight=0.0))
    assert terms["loss"].item() == pytest.approx(0.0, abs=1e-5)
    off = matches._replace(field=matches.field + torch.tensor([0.5, 0.0]))
    terms = total_loss(off, batch, LossConfig(consistency_weight=0.0, final_weight=3.0))
    assert terms["loss"].item() == pytest.approx(1.5, abs=1e-5)
    one = torch.tensor([1.0, 0.0])
    steps = [s._replace(position=s.position + one) if s.kind == "self" else s for s in matches.steps]
    terms = total_loss(matches._replace(steps=tuple(steps)), batch, LossConfig(consistency_weight=0.0))
    shares = step_weights([s.scale for s in steps], 0.2)
    expected = sum(w * s.scale for w, s in zip(shares, steps) if s.kind == "self")
    assert terms["self"].item() == pytest.approx(expected, rel=1e-5)
    assert terms["loss"].item() == pytest.approx(0.3 * expected, rel=1e-5)


def test_the_total_counts_the_views_disagreement():
    batch = ShiftedCards(0).batch(0, 2, 64, 96)
    matches = _perfect(batch)
    tenth = torch.tensor([0.1, 0.0])  # of a token, in both views: they disagree by two tenths, and within the mask
    steps = tuple(s._replace(position=s.position + tenth) if s.kind == "cross" else s for s in matches.steps)
    matches = matches._replace(steps=steps)
    without, with_it = (total_loss(matches, batch, LossConfig(consistency_weight=weight)) for weight in (0.0, 5.0))
    assert with_it["consistency"] > 0.1
    expected = without["loss"] + 0.3 * 5.0 * with_it["consistency"]
    torch.testing.assert_close(with_it["loss"], expected)


def test_the_final_term_leaves_out_the_padding_at_the_top_and_on_the_right():
    height, width = 50, 70  # padded to 64x96
    ramp = torch.arange(height * width, dtype=torch.float32).view(1, height, width) / width / height
    known = torch.ones(1, height, width, dtype=torch.bool)
    batch = Batch(torch.zeros(1, 3, height, width), torch.zeros(1, 3, height, width),
                  _stereo(-ramp), _stereo(ramp), known, known)  # fmt: skip
    matches = Matches(torch.cat((batch.field0, batch.field1)) + torch.tensor([0.25, 0.0]), torch.zeros(0), (),
                      Initial(torch.zeros(2, 2, 3, 2), None))  # fmt: skip
    assert total_loss(matches, batch, LossConfig())["final"].item() == pytest.approx(0.25)


@pytest.mark.parametrize(("height", "width"), [(64, 96), (50, 70)])
def test_absurd_ground_truth_reaches_neither_value_nor_gradient(height, width):
    torch.manual_seed(0)
    network = TinyNetwork()
    batch = ShiftedCards(1).batch(0, 2, height, width)
    field0 = batch.field0.clone()
    field0[0, :5] = NAN
    field0[1, :5] = -1e9
    valid0 = batch.valid0.clone()
    valid0[:, :5] = False
    hidden = batch._replace(valid0=valid0)
    poisoned = batch._replace(field0=field0)
    losses = []
    for case in (hidden, poisoned):
        network.zero_grad()
        loss = total_loss(network(case.image0, case.image1), case, LossConfig())["loss"]
        loss.backward()
        losses.append((loss.item(), [p.grad.clone() for p in network.parameters()]))
    assert losses[0][0] == losses[1][0]
    assert all(torch.equal(a, b) for a, b in zip(losses[0][1], losses[1][1]))


def test_without_occlusion_handling_the_cross_branch_is_supervised_everywhere():
    """An inconsistent token, which the mask would drop, counts like any other."""
    batch = ShiftedCards(0, torch.device("cpu")).batch(0, 1, 32, 64)
    wrong = torch.zeros(2, 8, 16, 2)
    wrong[0, ..., 0] = -9.0  # view 1 says zero: nothing is consistent
    initial = Initial(torch.zeros(2, 1, 2, 2), None)
    matches = Matches(torch.zeros(2, 32, 64, 2), None, (Step(4, "cross", wrong),), initial)
    masked = total_loss(matches, batch, LossConfig())
    plain = total_loss(matches, batch, LossConfig(mask_occlusions=False))
    assert plain["cross"] > masked["cross"] + 1
    assert plain["consistency"] == 0


def test_nothing_known_gives_a_finite_zero():
    network = TinyNetwork()
    batch = ShiftedCards(1).batch(0, 1, 64, 64)
    none = torch.zeros_like(batch.valid0)
    batch = batch._replace(valid0=none, valid1=none)
    loss = total_loss(network(batch.image0, batch.image1), batch, LossConfig())["loss"]
    loss.backward()
    assert loss.item() == 0
    assert all((p.grad == 0).all() for p in network.parameters())
