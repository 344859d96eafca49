"""A fused confidence head answers as the head does, in Triton's interpreter or on a GPU."""

import pytest
import torch

pytest.importorskip("triton")

from matchattention.inference.consistency import judge_both
from matchattention.layers.confidence_head import ConfidenceHead, LastStage, evidence_of
from matchattention.runtime.fused.confidence import FusedHead
from tests.runtime.networks import DEVICE


def evidence(size, channels, pairs=1):
    """Of images of this size, whose sides are no multiples of 32; some matches out of view, one of them broken."""
    height, width = size
    down, across = (-(-side // 32) * 8 for side in size)
    generator = torch.Generator().manual_seed(4)

    def random(*shape):
        return torch.randn(shape, generator=generator).to(DEVICE)

    field = random(2 * pairs, height, width, 2) * 6
    packed = random(2 * pairs, down, across, 16)  # positions lie in rows of all heads' ones
    last = LastStage(random(2 * pairs, down, across, channels).half(), packed[..., 2:4], packed[..., :2])
    _, agreement = judge_both(field)
    return evidence_of(field, last, agreement)


@pytest.mark.parametrize(
    ("size", "shape", "pairs"),
    [((60, 90), {"channels": 24}, 2), ((32, 64), {"channels": 32, "width": 20, "pixel_channels": 3}, 1)],
    ids=["padded batch", "odd widths"],
)
@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-4), (torch.float16, 5e-3)])
@torch.no_grad()
def test_answers_as_the_head_does(size, shape, pairs, dtype, allowed):
    torch.manual_seed(5)
    head = ConfidenceHead(**shape).to(DEVICE)
    for parameter in head.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    head.mean += torch.randn_like(head.mean)
    head.deviation += torch.rand_like(head.deviation)
    seen = evidence(size, shape["channels"], pairs)
    assert (seen.agreement == 0).any()
    mixture = head(seen)
    confidence, error = FusedHead(head, dtype)(seen, 1.0, 0.6827)
    assert confidence.shape == error.shape == (pairs, *size)
    torch.testing.assert_close(confidence, mixture.within(1.0), rtol=allowed, atol=allowed)
    torch.testing.assert_close(error, mixture.quantile(0.6827), rtol=20 * allowed, atol=10 * allowed)


@torch.no_grad()
def test_a_broken_match_is_not_trusted():
    head = ConfidenceHead(16).to(DEVICE)
    seen = evidence((64, 96), 16)
    seen.field[0, 5, 7] = float("nan")
    expected = head(seen).within(1.0)
    confidence, error = FusedHead(head)(seen, 1.0, 0.6827)
    assert confidence[0, 5, 7].isnan()
    assert error[0, 5, 7].isnan()
    assert torch.equal(confidence.isnan(), expected.isnan())
