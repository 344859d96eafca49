"""Ground truth in the shape a network's outputs have: padded, coarse, and as matching distributions.

Nothing here carries a gradient, synchronises with the host or has data-dependent shapes, so that a whole
training step can be captured in a CUDA graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.layers.consistency import sample_at
from matchattention.layers.tokens import pixel_grid, swap_views


class Truth(NamedTuple):
    """Ground truth of both views stacked on the batch axis, view 0 first.

    Attributes:
        field: (2B, H, W, 2) fp32 px, zero where unknown.
        valid: (2B, H, W) bool, known and believable.
        occluded: (2B, H, W) bool, the match is hidden or out of view.
    """

    field: Tensor
    valid: Tensor
    occluded: Tensor


def in_view(match: Tensor) -> Tensor:
    """Whether absolute positions (…, H, W, 2) fall on the H x W map, half a cell of tolerance included."""
    height, width = match.shape[-3:-1]
    x, y = match.unbind(-1)
    return (x >= -0.5) & (x <= width - 0.5) & (y >= -0.5) & (y <= height - 0.5)


def sample_bilinear(values: Tensor, position: Tensor) -> Tensor:
    """Read maps at continuous positions, border values repeated outside.

    Differentiable in the values and, through the interpolation weights, in the positions.

    Args:
        values: (N, H, W, C).
        position: (N, h, w, 2) absolute (x, y) in cells of ``values``.

    Returns:
        (N, h, w, C).
    """
    height, width = values.shape[1:3]
    # A NaN must not become a wild index: on a GPU that would end the process, not the sample.
    x, y = position.nan_to_num(0.0).unbind(-1)
    return sample_at(values, torch.stack((x.clamp(0, width - 1), y.clamp(0, height - 1)), -1))


def occlusion_from_fields(field: Tensor, valid: Tensor, tolerance: float = 1.5) -> Tensor:
    """Occlusion of both views from their ground truth alone, for data without labels.

    A pixel is occluded when its match is out of view, or when the other view's pixel there is known
    and points elsewhere.

    Args:
        field: (2B, H, W, 2) px, views stacked.
        valid: (2B, H, W) bool.
        tolerance: Largest forward-backward distance of a visible pixel, px.

    Returns:
        (2B, H, W) bool.
    """
    height, width = field.shape[1:3]
    match = field + pixel_grid(height, width, field.device)
    column = match[..., 0].nan_to_num(0.0).round().long().clamp(0, width - 1)
    row = match[..., 1].nan_to_num(0.0).round().long().clamp(0, height - 1)
    index = (row * width + column).flatten(1)
    back = swap_views(field).flatten(1, 2).gather(1, index.unsqueeze(-1).expand(-1, -1, 2))
    known = swap_views(valid).flatten(1).gather(1, index).view_as(valid)
    distance = (field + back.view_as(field)).abs().sum(-1)
    return ~in_view(match) | (known & (distance > tolerance))


def believable(field: Tensor) -> Tensor:
    """Whether offsets (…, H, W, 2) in px are finite and no longer than the image: (…, H, W) bool."""
    height, width = field.shape[-3:-1]
    x, y = field.unbind(-1)
    return (x.abs() <= width) & (y.abs() <= height)  # false for NaN


def stacked_truth(batch: Batch, padded_height: int, padded_width: int) -> Truth:
    """Both views' ground truth, padded at the top and on the right as the networks pad their input.

    Ground truth that is not finite or longer than the image counts as unknown, and its values are
    zeroed: a masked NaN would still reach the gradients.
    """
    field = torch.cat((batch.field0, batch.field1)).float()
    valid = torch.cat((batch.valid0, batch.valid1)) & believable(field)
    field = torch.where(valid.unsqueeze(-1), field, torch.zeros((), device=field.device))
    if batch.occluded0 is not None and batch.occluded1 is not None:
        occluded = torch.cat((batch.occluded0, batch.occluded1))
    else:
        occluded = occlusion_from_fields(field, valid)
    top, right = padded_height - field.shape[1], padded_width - field.shape[2]
    if top or right:
        field = F.pad(field, (0, 0, 0, right, top, 0))
        valid = F.pad(valid, (0, right, top, 0), value=False)
        occluded = F.pad(occluded, (0, right, top, 0), value=False)
    return Truth(field, valid, occluded)


def at_token_centres(truth: Truth, scale: int) -> tuple[Tensor, Tensor]:
    """Field (2B, h, w, 2) px and validity (2B, h, w) of the pixel nearest each token's centre.

    Averaging over the token would invent depths that exist nowhere at a depth edge.
    """
    first = scale // 2
    return truth.field[:, first::scale, first::scale], truth.valid[:, first::scale, first::scale]


class MatchingTarget(NamedTuple):
    """Where each coarse token's matches should lie.

    Attributes:
        mass: (B, h, w, h', w') share of each token of the other view; h' is 1 for stereo (same row).
        dustbin: (B, h, w) share without a visible match. ``mass`` and ``dustbin`` sum to 1 where known.
        known: (B, h, w) bool, some pixel of the token has ground truth.
    """

    mass: Tensor
    dustbin: Tensor
    known: Tensor


def _laplacian(centre: Tensor, cells: int, width: float) -> Tensor:
    """Unnormalised Laplacian of (…,) centres on integer cells: (…, cells)."""
    grid = torch.arange(cells, device=centre.device, dtype=centre.dtype)
    # Subtracting the nearest cell's exponent keeps the largest entry at one for any centre.
    distance = (centre.unsqueeze(-1) - grid).abs()
    return torch.exp((distance.amin(-1, keepdim=True) - distance) / width)


def matching_target(
    field: Tensor,
    valid: Tensor,
    occluded: Tensor,
    *,
    scale: int,
    allowed: Tensor | None,
    width: float,
    centre_share: float,
    samples: int,
) -> MatchingTarget:
    """Multi-modal matching distribution of one view (after ADL, Xu et al., CVPR 2024).

    A 32 px token that straddles a depth edge has matches in two places; a single-peak target would
    punish the network for seeing both. Each token's target is a mixture of Laplacians around the
    matches of its pixels: ``centre_share`` for the pixel at its centre (the one the coarse fields are
    supervised with), the rest spread over a grid of its pixels. Occluded pixels put their share into
    the dustbin.

    Args:
        field: (B, H, W, 2) px; H and W are multiples of ``scale``.
        valid: (B, H, W) bool.
        occluded: (B, H, W) bool.
        scale: Pixels per token.
        allowed: Stereo: (w, w) bool, which columns a token of each column may match, along its row.
            None: flow, every token of the other view.
        width: Laplacian width in tokens.
        centre_share: Share of the centre pixel's match in the mixture, 0 to 1.
        samples: Pixels sampled per token side.
    """
    height, image_width = valid.shape[1:]
    rows, columns = height // scale, image_width // scale
    device = field.device
    offset = ((torch.arange(samples, device=device) * 2 + 1) * scale // (2 * samples)).long()
    centre = torch.full((1,), scale // 2, device=device, dtype=torch.long)
    offset_y = torch.cat((centre, offset.repeat_interleave(samples)))  # (S,), the centre pixel first
    offset_x = torch.cat((centre, offset.repeat(samples)))
    pixel_y = (torch.arange(rows, device=device) * scale).view(-1, 1, 1) + offset_y  # (h, 1, S)
    pixel_x = (torch.arange(columns, device=device) * scale).view(1, -1, 1) + offset_x  # (1, w, S)
    index = (pixel_y * image_width + pixel_x).flatten()  # (h w S)

    def pick(values: Tensor) -> Tensor:
        return values.flatten(1, 2).index_select(1, index).unflatten(1, (rows, columns, -1))

    offsets, is_valid, is_occluded = pick(field), pick(valid), pick(occluded)  # (B, h, w, S, …)
    match_x = (pixel_x + 0.5 + offsets[..., 0]) / scale - 0.5  # (B, h, w, S), tokens
    match_y = (pixel_y + 0.5 + offsets[..., 1]) / scale - 0.5

    is_valid_f = is_valid.float()
    spread = (1 - centre_share) * is_valid_f[..., 1:] / is_valid_f[..., 1:].sum(-1, keepdim=True).clamp(min=1)
    share = torch.cat((centre_share * is_valid_f[..., :1], spread), dim=-1)  # (B, h, w, S)
    total = share.sum(-1, keepdim=True)
    share = share / total.clamp(min=1e-6)
    visible = share * (~is_occluded).float()

    along_x = _laplacian(match_x, columns, width)  # (B, h, w, S, w')
    if allowed is not None:
        along_x = along_x * allowed.view(1, 1, columns, 1, columns)
    along_x = along_x / along_x.sum(-1, keepdim=True).clamp(min=1e-6)
    if allowed is not None:
        mass = torch.einsum("bhws,bhwsx->bhwx", visible, along_x).unsqueeze(-2)
    else:
        along_y = _laplacian(match_y, rows, width)
        along_y = along_y / along_y.sum(-1, keepdim=True)
        mass = torch.einsum("bhwsy,bhwsx->bhwyx", visible.unsqueeze(-1) * along_y, along_x)
    dustbin = (share * is_occluded.float()).sum(-1)
    return MatchingTarget(mass, dustbin, total.squeeze(-1) > 0)
