"""Ground truth as the losses see it, against cases small enough to work out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from matchattention.data.batch import Batch
from matchattention.training.sources import ShiftedCards
from matchattention.training.targets import (
    Truth,
    at_token_centres,
    believable,
    matching_target,
    occlusion_from_fields,
    sample_bilinear,
    stacked_truth,
)


def _stereo(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((x, torch.zeros_like(x)), -1)


def _target(field, valid, occluded, **changes):
    options = {"scale": 4, "allowed": None, "width": 0.5, "centre_share": 0.8, "samples": 2} | changes
    return matching_target(field, valid, occluded, **options)


def test_bilinear_sampling_by_hand():
    values = torch.tensor([[[[0.0], [10.0]], [[20.0], [30.0]]]])  # (1, 2, 2, 1)
    position = torch.tensor([[[[0.25, 0.5], [1.0, 1.0]], [[-3.0, 0.0], [float("nan"), 9.0]]]])
    sampled = sample_bilinear(values, position)[..., 0]
    assert sampled.tolist() == [[[12.5, 30.0], [0.0, 20.0]]]


def test_bilinear_sampling_gradients():
    torch.manual_seed(0)
    values = torch.randn(2, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    position = torch.rand(2, 3, 3, 2, dtype=torch.float64) * 1.6 + 0.2  # inside, away from integers
    position = (position.floor() + 0.2 + 0.6 * (position - position.floor())).requires_grad_()
    assert torch.autograd.gradcheck(sample_bilinear, (values, position))


def test_believable_excludes_what_is_not_finite_or_longer_than_the_image():
    x = torch.tensor([[0.0, -4.0, 4.5, float("nan"), float("inf")]])  # one row, five columns
    assert believable(_stereo(x)).tolist() == [[True, True, True, False, False]]
    assert believable(_stereo(torch.tensor([[-5.1, 5.0, 0, 0, 0]]))).tolist() == [[False, True, True, True, True]]


@pytest.mark.parametrize("index", range(4))
def test_occlusion_from_fields_agrees_with_exact_labels(index):
    batch = ShiftedCards(3).batch(index, 1, 48, 96)
    field = torch.cat((batch.field0, batch.field1))
    found = occlusion_from_fields(field, torch.ones(2, 48, 96, dtype=torch.bool), tolerance=0.5)
    assert torch.equal(found, torch.cat((batch.occluded0, batch.occluded1)))


def test_views_may_differ_by_a_pixel_and_a_half_before_a_pixel_counts_as_occluded():
    known = torch.ones(2, 1, 6, dtype=torch.bool)
    for gap, occluded in ((1.4, False), (1.6, True)):
        x = torch.stack((torch.full((1, 6), -1.0), torch.full((1, 6), 1.0 + gap)))
        assert occlusion_from_fields(_stereo(x), known)[0, 0, 1:].tolist() == [occluded] * 5


def test_occlusion_needs_to_know_the_other_view_unless_out_of_view():
    field = _stereo(torch.tensor([[[-2.0, -2.0, -2.0]], [[9.0, 9.0, 9.0]]]))
    valid = torch.tensor([[[True, True, True]], [[False, False, False]]])
    assert occlusion_from_fields(field, valid)[0].tolist() == [[True, True, False]]


def test_truth_is_padded_at_the_top_and_on_the_right_and_cleaned():
    field = torch.full((1, 3, 5, 2), -1.0)
    field[0, 0, 0, 0] = float("nan")
    valid = torch.ones(1, 3, 5, dtype=torch.bool)
    images = torch.zeros(1, 3, 3, 5)
    truth = stacked_truth(Batch(images, images, field, -field, valid, valid), 4, 8)
    assert truth.field.shape == (2, 4, 8, 2)
    assert torch.isfinite(truth.field).all()
    expected = torch.zeros(4, 8, dtype=torch.bool)
    expected[1:, :5] = True
    expected[1, 0] = False
    assert torch.equal(truth.valid[0], expected)


@pytest.mark.parametrize(("height", "width"), [(3, 8), (4, 5)])
def test_truth_is_padded_on_one_side_alone(height, width):
    field, valid = torch.full((1, 3, 5, 2), -1.0), torch.ones(1, 3, 5, dtype=torch.bool)
    images = torch.zeros(1, 3, 3, 5)
    truth = stacked_truth(Batch(images, images, field, -field, valid, valid), height, width)
    assert truth.field.shape == (2, height, width, 2)
    assert truth.valid.shape == truth.occluded.shape == (2, height, width)
    assert truth.valid[:, height - 3 :, :5].all()
    assert truth.valid.sum() == 30


def test_coarse_truth_is_the_pixel_at_the_centre():
    x = torch.arange(64.0).view(1, 8, 8)
    truth = Truth(_stereo(x), x >= 20, x < 0)
    field, valid = at_token_centres(truth, 4)
    assert field[..., 0].tolist() == [[[18.0, 22.0], [50.0, 54.0]]]
    assert valid.tolist() == [[[False, True], [True, True]]]


class TestMatchingTarget:
    allowed = torch.ones(4, 4, dtype=torch.bool).tril()

    def _row(self, disparity: float, **changes):
        shape = (1, 4, 16)
        field = _stereo(torch.full(shape, -disparity))
        options = {"allowed": self.allowed} | changes
        return _target(field, torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool), **options)

    def test_whole_token_shift_by_hand(self):
        # The centre pixel (2 of 4) matches half a pixel right of its token's centre: 0.125 tokens.
        target = self._row(4.0, centre_share=1.0)
        weights = [math.exp(-(abs(j - 1.125) - 0.125) / 0.5) for j in range(3)]  # token 2 may match 0, 1, 2
        expected = [w / sum(weights) for w in weights] + [0.0]
        assert target.mass[0, 0, 2, 0].tolist() == pytest.approx(expected, abs=1e-6)

    def test_sums_to_one_and_respects_the_mask(self):
        target = self._row(5.5)
        assert torch.allclose(target.mass.sum((-1, -2)) + target.dustbin, torch.ones(1, 1, 4))
        assert (target.mass[0, 0, :, 0][~self.allowed] == 0).all()

    def test_two_surfaces_give_two_modes(self):
        x = torch.full((1, 4, 16), -12.0)
        x[..., 14:] = -4.0  # right half of the last token, which holds its centre pixel (14)
        shape = x.shape
        target = _target(
            _stereo(x),
            torch.ones(shape, dtype=torch.bool),
            torch.zeros(shape, dtype=torch.bool),
            allowed=self.allowed,
            centre_share=0.5,
            width=0.05,
        )
        # The centre's half and a half of the rest on one surface, the other quarter on the other.
        assert target.mass[0, 0, 3, 0].tolist() == pytest.approx([0.25, 0.0, 0.75, 0.0], abs=0.01)

    def test_occluded_share_goes_to_the_dustbin_and_unknown_tokens_are_marked(self):
        shape = (1, 4, 16)
        valid = torch.ones(shape, dtype=torch.bool)
        valid[..., 4:8] = False
        occluded = torch.zeros(shape, dtype=torch.bool)
        occluded[..., 8:12] = True  # the whole of token 2
        occluded[..., 14:] = True  # half of token 3 with its centre
        field = _stereo(torch.zeros(shape))
        target = _target(field, valid, occluded, allowed=self.allowed, centre_share=0.8)
        assert target.known[0, 0].tolist() == [True, False, True, True]
        assert target.dustbin[0, 0].tolist() == pytest.approx([0.0, 0.0, 1.0, 0.8 + 0.1])

    def test_flow_matches_in_two_dimensions(self):
        shape = (1, 8, 12)
        field = torch.zeros(*shape, 2)
        field[..., 0], field[..., 1] = 4.0, -4.0
        ones, zeros = torch.ones(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
        target = _target(field, ones, zeros)
        assert target.mass.shape == (1, 2, 3, 2, 3)
        assert torch.allclose(target.mass.sum((-1, -2)), torch.ones(1, 2, 3))
        assert target.mass[0, 1, 0].flatten().argmax().item() == 1  # one up, one right


def test_padding_lies_at_the_top_and_on_the_right_and_is_unknown():
    field = torch.arange(2.0 * 3 * 5 * 2).view(2, 3, 5, 2) / 100
    known = torch.ones(1, 3, 5, dtype=torch.bool)
    images = torch.zeros(1, 3, 3, 5)
    batch = Batch(images, images, field[:1], field[1:], known, known, ~known, known)
    truth = stacked_truth(batch, 4, 8)
    assert torch.equal(truth.field[:, 1:, :5], field)
    assert torch.equal(truth.valid[:, 1:, :5], torch.ones(2, 3, 5, dtype=torch.bool))
    assert torch.equal(truth.occluded[:, 1:, :5], torch.cat((~known, known)))
    for part in (truth.field, truth.valid, truth.occluded):
        assert not part[:, :1].any()
        assert not part[:, :, 5:].any()
