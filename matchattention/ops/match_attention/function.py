"""The operator's one public function."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from matchattention.errors import InputError
from matchattention.ops.match_attention import backends
from matchattention.ops.match_attention.positions import as_window, check_window

SIMILARITIES = ("l1", "dot")


@overload
def match_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int] = ...,
    similarity: str = ...,
    backend: str = ...,
    need_weights: Literal[True] = ...,
) -> tuple[Tensor, Tensor]: ...
@overload
def match_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int] = ...,
    similarity: str = ...,
    backend: str = ...,
    need_weights: bool = ...,
) -> tuple[Tensor, Tensor | None]: ...
def match_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int] = (1, 4),
    similarity: str = "l1",
    backend: str = "auto",
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Attend to a small contiguous window centred at query + relative position, sub-pixel and differentiable.

    Args:
        q: (B, H, W, heads, c) queries.
        k: (B, H, W, heads, c) keys of the view looked into.
        v: (B, H, W, heads, c_v) values of the view looked into.
        relative_position: (B, H, W, heads or 1, 2) as (x, y) in tokens, fp32 (fp64 when all inputs are).
        window: rows x columns of the expanded window, in the paper's notation: (1, 4), (4, 4), (6, 6), (1, 8).
            One row means 1D: the query's own row, and the y component is ignored.
        similarity: "l1", the paper's -c^(-1/2) ||q - k||_1, or "dot", c^(-1/2) q·k.
        backend: "auto", "reference", "planes", "triton" or "compile". An explicit request is never replaced.
        need_weights: False lets a fused backend skip the second output.

    Returns:
        The attended values (B, H, W, heads, c_v) in v's dtype, and the weights (B, H, W, heads, rows*columns)
        in fp32 (fp64 for fp64 inputs), row-major over the window, each summing to one; None when not needed.

    Raises:
        InputError: shapes, dtypes or the window do not fit, or the requested backend cannot run the call.
    """
    window = as_window(window)
    _check(q, k, v, relative_position, window, similarity)
    chosen = backends.choose(backend, (q, k, v, relative_position, window, similarity))
    with torch.autocast(q.device.type, enabled=False):  # similarities and sums stay in fp32
        return chosen.run(q, k, v, relative_position, window, similarity, need_weights)


def _check(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, window: tuple[int, int], similarity: str
) -> None:
    check_window(window)
    if similarity not in SIMILARITIES:
        raise InputError(f"similarity is one of {', '.join(SIMILARITIES)}; got '{similarity}'.")
    if q.dim() != 5 or k.shape != q.shape or v.shape[:-1] != q.shape[:-1]:
        raise InputError(
            "q and k must have one shape (B, H, W, heads, c) and v the same but for its last dimension; "
            f"got {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}."
        )
    expected = (*q.shape[:3], relative_position.shape[3] if relative_position.dim() == 5 else 1, 2)
    if tuple(relative_position.shape) != expected or expected[3] not in (1, q.shape[3]):
        raise InputError(
            f"relative_position must be (B, H, W, heads or 1, 2) = {(*q.shape[:3], q.shape[3], 2)}; "
            f"got {tuple(relative_position.shape)}."
        )
    if not (q.dtype == k.dtype == v.dtype) or not q.dtype.is_floating_point:
        raise InputError(f"q, k and v must share one floating dtype; got {q.dtype}, {k.dtype}, {v.dtype}.")
    position = torch.promote_types(q.dtype, torch.float32)
    if relative_position.dtype != position:
        raise InputError(
            f"relative_position must be {position} beside {q.dtype} features; got {relative_position.dtype}. "
            "Half precision cannot hold sub-pixel positions in wide images."
        )
