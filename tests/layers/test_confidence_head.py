"""The confidence head: a mixture that is a distribution, and a head that any image size fits."""

from __future__ import annotations

import pytest
import torch

from matchattention.layers.confidence_head import ConfidenceHead, Evidence, Mixture


def _mixture() -> Mixture:
    narrow = torch.tensor([[[0.1, 0.5, 2.0]]])
    return Mixture(narrow, narrow * 8, torch.tensor([[[0.05, 0.5, 0.95]]]))


def _evidence(height: int = 37, width: int = 70, channels: int = 8) -> Evidence:
    """Of an image that is no multiple of 32: tokens lie on the padded one."""
    rows, columns = -(-height // 32) * 8, -(-width // 32) * 8
    generator = torch.Generator().manual_seed(0)
    positions = torch.randn(2, rows, columns, 2, generator=generator)
    return Evidence(
        torch.randn(2, rows, columns, channels, generator=generator),
        positions,
        positions + 0.1,
        torch.randn(2, height, width, 2, generator=generator),
        torch.rand(2, height, width, generator=generator),
    )


def test_quantile_inverts_within() -> None:
    mixture = _mixture()
    for probability in (0.1, 0.6827, 0.95):
        torch.testing.assert_close(
            mixture.within(mixture.quantile(probability)), torch.full((1, 1, 3), probability), atol=5e-3, rtol=0
        )


def test_likelihood_is_the_derivative_of_within() -> None:
    mixture = _mixture()
    error = torch.tensor([[[0.3, 0.7, 5.0]]])
    step = 1e-3
    density = (mixture.within(error + step) - mixture.within(error - step)) / (2 * step)
    torch.testing.assert_close(-density.log(), mixture.negative_log_likelihood(error), atol=5e-3, rtol=0)


def test_head_answers_at_the_size_of_the_field() -> None:
    mixture = ConfidenceHead(8)(_evidence())
    assert mixture.share.shape == (2, 37, 70)
    assert (mixture.narrow > 0).all()
    assert (mixture.wide >= mixture.narrow).all()
    assert ((mixture.within(1.0) >= 0) & (mixture.within(1.0) <= 1)).all()


def test_the_wide_part_is_wider_by_what_the_head_finds() -> None:
    head = ConfidenceHead(8)
    with torch.no_grad():
        head.decide.weight.zero_()
        head.decide.bias.copy_(torch.tensor([0.0, -3.0, 0.0]))
    mixture = head(_evidence())
    for found, expected in zip(mixture, (1.0, 1.0 + torch.tensor(-3.0).exp(), 0.5)):
        torch.testing.assert_close(found, torch.full_like(found, float(expected)))


@pytest.mark.parametrize("which", ["features", "agreement", "field", "before"])
def test_every_piece_of_evidence_is_read(which: str) -> None:
    torch.manual_seed(1)
    head, evidence = ConfidenceHead(8), _evidence()
    other = evidence._replace(**{which: getattr(evidence, which) * 0.5})
    assert not torch.equal(head(evidence).share, head(other).share)


def test_out_of_view_and_broken_pixels_stay_finite() -> None:
    evidence = _evidence()
    evidence.agreement[:, :5] = 0
    mixture = ConfidenceHead(8)(evidence)
    assert all(value.isfinite().all() for value in mixture)
    assert mixture.quantile(0.6827).isfinite().all()


def test_padding_lies_at_the_top_and_on_the_right_as_the_images_has() -> None:
    """The answer for the padded field, where the edge repeats, is the answer, cropped."""
    head, evidence = ConfidenceHead(8), _evidence()
    height, width = evidence.field.shape[1:3]
    rows, columns = (4 * extent for extent in evidence.features.shape[1:3])
    y = (torch.arange(rows) - (rows - height)).clamp(min=0)
    x = torch.arange(columns).clamp(max=width - 1)
    whole = evidence._replace(field=evidence.field[:, y][:, :, x], agreement=evidence.agreement[:, y][:, :, x])
    for found, padded in zip(head(evidence), head(whole)):
        torch.testing.assert_close(found, padded[:, rows - height :, :width])
