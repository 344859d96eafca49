"""The operator's gradient written out in plain PyTorch, for the calls the backward kernel does not take.

It serves windows whose unrolled backward kernel would take minutes to compile. Rows are worked on in chunks, as in the
reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.ops.match_attention.positions import EDGE, Windows, radius, windows
from matchattention.ops.match_attention.reference import CHUNK_ELEMENTS, MASKED, _gather, _key_index, _similarity

Gradients = tuple[Tensor, Tensor, Tensor, Tensor]


def plain_backward(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    dot: bool,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> Gradients:
    """Gradients of q, k, v and the relative position; arguments as in `triton_backward.backward`."""
    batch, height, width, heads, channels = q.shape
    total = torch.promote_types(q.dtype, torch.float32)
    grad_k, grad_v = (torch.zeros(t.shape, dtype=total, device=t.device) for t in (k, v))
    grad_q = q.new_empty(q.shape)
    grad_r = relative_position.new_empty(relative_position.shape)
    per_row = batch * width * heads * window[0] * window[1] * max(channels, v.shape[-1])
    rows = max(1, min(height, chunk_elements // max(per_row, 1)))
    for first in range(0, height, rows):
        part = slice(first, min(first + rows, height))
        weights_part = None if grad_weights is None else grad_weights[:, part]
        grad_q[:, part], grad_r[:, part] = _rows(
            grad_out[:, part],
            weights_part,
            q[:, part],
            k,
            v,
            relative_position[:, part],
            window,
            dot,
            first,
            grad_k,
            grad_v,
        )
    return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), grad_r


def _rows(
    grad_out: Tensor,
    grad_weights: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    dot: bool,
    first_row: int,
    grad_k: Tensor,
    grad_v: Tensor,
) -> tuple[Tensor, Tensor]:
    """Gradients of some rows' queries and positions; adds theirs of the keys and values to `grad_k`, `grad_v`."""
    size = (k.shape[1], k.shape[2])
    total = grad_k.dtype
    placed = windows(relative_position, window, first_row, size[0])
    index, inside = _key_index(placed, window, size)
    queries, keys, grad_out = q.to(total), _gather(k, index).to(total), grad_out.to(total)
    scores = _similarity(queries, keys, "dot" if dot else "l1")
    if inside is not None:
        scores = scores.masked_fill(~inside, MASKED)
    grads = torch.einsum("bhwgc,bhwgnc->bhwgn", grad_out, _gather(v, index).to(total))
    if grad_weights is not None:
        grads = grads + grad_weights
    weights, grad_scores, grad_right, grad_below = _sampling(scores, grads, placed, window)
    pull = (grad_scores * q.shape[-1] ** -0.5).unsqueeze(-1)  # (B, h, W, heads, keys, 1)
    if dot:
        grad_q, grad_keys = (pull * keys).sum(-2), pull * queries.unsqueeze(-2)
    else:
        grad_keys = pull * (queries.unsqueeze(-2) - keys).sign()
        grad_q = -grad_keys.sum(-2)
    _scatter(grad_k, index, grad_keys)
    _scatter(grad_v, index, weights.unsqueeze(-1) * grad_out.unsqueeze(-2))
    return grad_q.to(q.dtype), _position_gradient(grad_right, grad_below, relative_position, window, first_row, size)


def _sampling(
    scores: Tensor, grads: Tensor, placed: Windows, window: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """CAS weights, the gradient of the scores, and that of the two fractions; see the kernel's twin."""
    rows, columns = window
    tall = rows if placed.below is None else rows - 1
    grid, grid_grads = scores.unflatten(-1, window), grads.unflatten(-1, window)
    weights, grad_scores = torch.zeros_like(grid), torch.zeros_like(grid)
    grad_right, grad_below = torch.zeros_like(scores[..., 0]), torch.zeros_like(scores[..., 0])
    for corner in range(2 if placed.below is None else 4):
        top, left = divmod(corner, 2)
        across = placed.right if left else 1 - placed.right
        down = torch.ones_like(across) if placed.below is None else placed.below if top else 1 - placed.below
        part = (..., slice(top, top + tall), slice(left, left + columns - 1))
        soft = grid[part].flatten(-2).softmax(-1).view(grid[part].shape)
        mean = (soft * grid_grads[part]).sum((-2, -1))
        share = (across * down)[..., None, None]
        weights[part] += share * soft
        grad_scores[part] += share * soft * (grid_grads[part] - mean[..., None, None])
        grad_right += mean * down * (1 if left else -1)
        grad_below += mean * across * (1 if top else -1)
    return weights.flatten(-2), grad_scores.flatten(-2), grad_right, grad_below


def _scatter(total: Tensor, index: Tensor, parts: Tensor) -> None:
    """Add `parts` (B, h, W, heads, keys, c) to `total` (B, H, W, heads, c) at the flat positions `index`."""
    batch, height, width, heads, channels = total.shape
    image = torch.arange(batch, device=index.device).view(batch, 1, 1, 1, 1) * (height * width)
    head = torch.arange(heads, device=index.device).view(1, 1, 1, heads, 1)
    flat = ((image + index) * heads + head).expand(parts.shape[:-1])
    total.view(-1, channels).index_add_(0, flat.reshape(-1), parts.reshape(-1, channels))


def _position_gradient(
    grad_right: Tensor,
    grad_below: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    first_row: int,
    size: tuple[int, int],
) -> Tensor:
    """(B, h, W, heads or 1, 2) from the fractions' gradients; zero where the centre was clamped."""
    gradient = torch.zeros((*grad_right.shape, 2), dtype=relative_position.dtype, device=grad_right.device)
    device, dtype = relative_position.device, relative_position.dtype
    x = torch.arange(size[1], device=device, dtype=dtype).view(1, 1, -1, 1)
    rows = relative_position.shape[1]
    y = torch.arange(first_row, first_row + rows, device=device, dtype=dtype).view(1, -1, 1, 1)
    for axis, (start, grad) in enumerate(((x, grad_right), (y, grad_below))):
        extent, length = window[1 - axis], size[1 - axis]
        if extent == 1:
            continue
        centre, rad = start + relative_position[..., axis], radius(extent)
        moves = (centre >= rad) & (centre <= max(rad, length - 1 - rad - EDGE))
        gradient[..., axis] = grad * moves
    return gradient.sum(3, keepdim=True) if relative_position.shape[3] == 1 else gradient
