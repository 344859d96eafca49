"""How far off may each match be? A small network of its own that reads what the frozen network saw.

The error of a pixel is taken as drawn from a mixture of two Laplacians: a narrow one for matches that are right up to
their sub-pixel error, a wide one for those that are wrong. The head finds both scales and the share of the wide one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.tokens import as_image, as_tokens, split_views

ONE_SIGMA = 0.6827  # share of a normal distribution within one deviation
SCALE = 4  # px per token of what the head reads
TOKEN_CUES = 5
PIXEL_CUES = 4
FINEST, COARSEST = 0.02, 64.0  # px: both scales stay in between
FARTHEST = 64.0  # px: views that disagree by more, or not at all in view, count as this far apart
QUANTILE_STEPS = 3  # of Newton, from below: the probability is then met to 0.5 %


class LastStage(NamedTuple):
    """What a network's last stage read and left, of both views.

    Attributes:
        features: (2B, h, w, d) its last tokens, at 1/4 of the padded image.
        before: (2B, h, w, 2) fp32 tokens, the cross position that came into it.
        after: (2B, h, w, 2) fp32 tokens, the cross position that left it.
    """

    features: Tensor
    before: Tensor
    after: Tensor


class Evidence(NamedTuple):
    """What a pass leaves for the head, of the first view alone; see `LastStage`.

    Attributes:
        features: (B, h, w, d).
        before: (B, h, w, 2) fp32 tokens.
        after: (B, h, w, 2) fp32 tokens.
        field: (B, H, W, 2) fp32 px, the field that was made of it.
        agreement: (B, H, W) fp32 in [0, 1], `inference.consistency`: do both views agree? 0 where the match is out
            of view.
    """

    features: Tensor
    before: Tensor
    after: Tensor
    field: Tensor
    agreement: Tensor


def evidence_of(field: Tensor, last: LastStage, agreement: Tensor) -> Evidence:
    """What a head reads of a pass: of field (2B, H, W, 2) px and last stage the first views, and their agreement."""
    features, before, after = (split_views(part)[0] for part in last)
    return Evidence(features, before, after, split_views(field)[0], agreement)


class Mixture(NamedTuple):
    """Two Laplacians for the error of every pixel.

    Attributes:
        narrow: (B, H, W) px, scale of matches that are right.
        wide: (B, H, W) px, scale of those that are wrong; never below ``narrow``.
        share: (B, H, W) in [0, 1], how likely a match is wrong.
    """

    narrow: Tensor
    wide: Tensor
    share: Tensor

    def within(self, distance: float | Tensor) -> Tensor:
        """(B, H, W) probability that the error is at most ``distance`` px."""
        right = (1 - self.share) * torch.expm1(-distance / self.narrow)
        return -(right + self.share * torch.expm1(-distance / self.wide))

    def quantile(self, probability: float) -> Tensor:
        """(B, H, W) px that the error stays within with this probability, by Newton's method."""
        beyond = 1 - probability
        right = 1 - self.share
        # Each part alone reaches less far than both: the larger of the two lies below, and near. What is left beyond
        # falls convexly, so that steps from below stay there.
        alone = self.narrow * (right / beyond).log(), self.wide * (self.share / beyond).log()
        found = torch.maximum(self.narrow * -math.log(beyond), torch.maximum(*alone))
        for _ in range(QUANTILE_STEPS):
            narrow, wide = right * torch.exp(-found / self.narrow), self.share * torch.exp(-found / self.wide)
            found = found + (narrow + wide - beyond) / (narrow / self.narrow + wide / self.wide)
        return found

    def negative_log_likelihood(self, error: Tensor) -> Tensor:
        """(B, H, W) of absolute errors in px."""
        right = torch.log1p(-self.share) - self.narrow.log() - error / self.narrow
        wrong = self.share.log() - self.wide.log() - error / self.wide
        return -torch.logaddexp(right, wrong)


class ConfidenceHead(nn.Module):
    """From the evidence of a pass to a mixture of two Laplacians for every pixel.

    Three 3x3 convolutions at 1/4 see the surroundings, a linear layer gives each of a token's pixels a few channels,
    and two more decide at full resolution, where the agreement of the two views is known.

    Args:
        channels: of the network's last features.
        width: channels at 1/4.
        pixel_channels: handed from a token to each of its pixels.

    Attributes:
        shape: the arguments it was made with.
        mean: (channels,) of the features, measured before training.
        deviation: (channels,) of them.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, channels: int, width: int = 32, pixel_channels: int = 4) -> None:
        super().__init__()
        self.shape = {"channels": channels, "width": width, "pixel_channels": pixel_channels}
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))
        self.enter = nn.Conv2d(channels + TOKEN_CUES, width, 3, padding=1)
        self.near = nn.Conv2d(width, width, 3, padding=1)
        self.far = nn.Conv2d(width, width, 3, padding=4, dilation=4)
        self.hand_down = nn.Conv2d(width, pixel_channels * SCALE**2, 1)
        self.mix = nn.Conv2d(pixel_channels + PIXEL_CUES, 16, 1)
        self.decide = nn.Conv2d(16, 3, 1)
        with torch.no_grad():  # begins with what most pixels are like: a quarter of a pixel, 4 px, one in ten wrong
            self.decide.weight.mul_(0.1)
            nn.init.zeros_(self.decide.bias).add_(torch.tensor([-1.4, 2.5, -2.2]))  # type: ignore[arg-type]

    def forward(self, evidence: Evidence) -> Mixture:
        height, width = evidence.field.shape[1:3]
        rows, columns = (SCALE * extent for extent in evidence.features.shape[1:3])
        pixels = _pixel_cues(_padded(evidence, rows, columns))  # (B, PIXEL_CUES, rows, columns)
        features = (evidence.features.float() - self.mean) / self.deviation
        tokens = torch.cat((as_image(features), _token_cues(evidence, pixels)), 1)
        hidden = F.relu(self.enter(tokens))
        hidden = hidden + F.relu(self.near(hidden))
        hidden = hidden + F.relu(self.far(hidden))
        decided = self.decided(hidden, pixels)[
            ..., rows - height :, :width
        ]  # `pad_image` padded at the top and at the right
        narrow = decided[:, 0].exp().clamp(FINEST, COARSEST)
        wide = (narrow * (1 + decided[:, 1].exp())).clamp(max=COARSEST)
        return Mixture(narrow, wide, decided[:, 2].sigmoid().clamp(1e-4, 1 - 1e-4))

    def decided(self, hidden: Tensor, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) of every pixel, from its token's (B, width, h, w) and its own cues (B, PIXEL_CUES, H, W)."""
        handed = F.pixel_shuffle(self.hand_down(hidden), SCALE)
        return self.decide(F.relu(self.mix(torch.cat((handed, pixels), 1))))


def _padded(evidence: Evidence, rows: int, columns: int) -> Evidence:
    """Field and agreement repeated at the top and at the right, where the network's image was padded."""
    height, width = evidence.field.shape[1:3]
    if (height, width) == (rows, columns):
        return evidence
    around = (0, columns - width, rows - height, 0)
    field = as_tokens(F.pad(as_image(evidence.field), around, mode="replicate"))
    agreement = F.pad(evidence.agreement[:, None], around, mode="replicate")[:, 0]
    return evidence._replace(field=field, agreement=agreement)


def _pixel_cues(evidence: Evidence) -> Tensor:
    """(B, PIXEL_CUES, H, W): how far views disagree, how far matches lie, how far from the token's, out of view."""
    out_of_view = evidence.agreement <= 0
    # The agreement is exp(-disagreement / 2 px).
    apart = (-2 * evidence.agreement.clamp(min=1e-30).log()).clamp(max=FARTHEST)
    length = evidence.field.norm(dim=-1)
    token = F.interpolate(as_image(evidence.after) * SCALE, scale_factor=SCALE, mode="nearest")
    from_token = (as_image(evidence.field) - token).norm(dim=1)
    cues = (torch.log1p(8 * apart), torch.log1p(length), torch.log1p(8 * from_token), out_of_view.float())
    return torch.stack(cues, 1)


def _token_cues(evidence: Evidence, pixels: Tensor) -> Tensor:
    """(B, TOKEN_CUES, h, w): the pixels' cues on average, and how far the last stage moved the match."""
    moved = ((evidence.after - evidence.before) * SCALE).norm(dim=-1)
    return torch.cat((F.avg_pool2d(pixels, SCALE), torch.log1p(8 * moved)[:, None]), 1)
