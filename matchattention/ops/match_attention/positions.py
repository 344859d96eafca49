"""From relative positions to windows: centre, clamp, floor and bilinear weights, never below fp32."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from matchattention.errors import InputError

# Keeps floor(centre) + rad + 1 inside the map when the centre is clamped to its far end.
EDGE = 1e-3


class Windows(NamedTuple):
    """Where each query looks, per axis.

    Attributes:
        column: (B, H, W, heads or 1) int64, first column of the expanded window.
        row: the same for rows; in 1D the query's own row.
        right: (B, H, W, heads or 1) share of the right sub-windows, in [0, 1).
        below: the same for the lower sub-windows; None in 1D.
    """

    column: Tensor
    row: Tensor
    right: Tensor
    below: Tensor | None


def radius(extent: int) -> int:
    """Radius of the w-wide sub-windows inside an expanded window of ``extent = w + 1`` keys."""
    return (extent - 2) // 2


def as_window(window: Any) -> tuple[int, int]:
    """A window as two integers, rows and columns."""
    try:
        rows, columns = (operator.index(extent) for extent in window)
    except (TypeError, ValueError):
        raise InputError(f"window is a pair (rows, columns) such as (1, 4) or (4, 4); got {window!r}.") from None
    return rows, columns


def check_window(window: tuple[int, int]) -> None:
    """Refuse windows that are not of the paper's form: w + 1 with w odd, or one row."""
    rows, columns = window
    if columns < 2 or columns % 2 or (rows != 1 and (rows < 2 or rows % 2)):
        raise InputError(
            f"A window is (1, even) or (even, even) such as (1, 4) or (4, 4), rows x columns; got {tuple(window)}."
        )


def _axis(centre: Tensor, size: int, extent: int) -> tuple[Tensor, Tensor]:
    """Clamp a centre so that its expanded window stays inside; return its first key and its fraction.

    A map no wider than w is attended to whole: the centre is pinned so that one sub-window covers it, and
    the keys beyond its end are masked by the caller.
    """
    rad = radius(extent)
    centre = centre.clamp(min=rad, max=max(rad, size - 1 - rad - EDGE))
    # Beyond 2^13 tokens fp32 may round the limit up to the next integer: the floor is held back with it.
    base = centre.detach().floor().clamp(max=max(rad, size - 2 - rad))
    base = base.nan_to_num(nan=rad)  # somewhere valid; the fraction brings the NaN back into the result
    return base.long() - rad, centre - base


def windows(relative_position: Tensor, window: tuple[int, int], first_row: int = 0, height: int = 0) -> Windows:
    """Place every query's window.

    Args:
        relative_position: (B, H, W, heads or 1, 2) as (x, y), fp32 or fp64.
        window: expanded window, rows x columns.
        first_row: row of the map at which ``relative_position`` starts, when it is a chunk of rows.
        height: rows of the whole map; 0 means that ``relative_position`` is the whole map.
    """
    _, rows, width, _, _ = relative_position.shape
    height = height or rows
    dtype, device = relative_position.dtype, relative_position.device
    x = torch.arange(width, dtype=dtype, device=device).view(1, 1, width, 1)
    column, right = _axis(x + relative_position[..., 0], width, window[1])
    if window[0] == 1:
        own = torch.arange(first_row, first_row + rows, device=device).view(1, rows, 1, 1)
        return Windows(column, own.expand_as(column), right, None)
    y = torch.arange(first_row, first_row + rows, dtype=dtype, device=device).view(1, rows, 1, 1)
    row, below = _axis(y + relative_position[..., 1], height, window[0])
    return Windows(column, row, right, below)
