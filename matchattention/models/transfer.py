"""A flow network that begins with what a stereo network knows.

Encoder, global attention, projections, gates and feed-forward layers have the same shapes and are taken as they
are. What differs is the window and the second axis:

- the 1x4 window's attention weights enter the output projection once per key. A 4x4 window gets the same column
  weights in each of its rows, so that what the network reads is the marginal over the rows, which sums to one as
  before;
- stereo keeps matches on their row, so its rows of the output projections that move y mean nothing. They start at
  zero, for cross and for self positions;
- beta's y takes the value of its x.

With all matches on their rows the cross positions of the first block are scaled and normed exactly as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig


def stereo_to_flow(weights: Mapping[str, Tensor], source: NetworkConfig, target: NetworkConfig) -> dict[str, Tensor]:
    """Weights of a flow network from a stereo network's.

    Args:
        weights: a stereo network's state.
        source: its config; windows of one row.
        target: the flow network's config: the same but for the task and the windows' rows.

    Raises:
        InputError: the networks differ in more than task and window rows.
    """
    _check(source, target)
    started = {name: value.clone() for name, value in weights.items()}
    inner = [width // source.compression for width in source.channels[::-1]]
    for stage, (width, attended, window) in enumerate(zip(source.channels[::-1], inner, target.windows)):
        for depth in range(source.decoder_depths[stage]):
            block = f"stages.{stage}.{depth}."
            started[block + "beta"][1] = started[block + "beta"][0]
            first = started[block + "first.out.weight"]
            # Rows behind the features: cross position (x, y), then the heads' self positions (x, y each).
            first[width + 1 :: 2] = 0
            name = block + "cross.out.weight"
            started[name] = _widen(started[name], attended, source.heads, window[0])
            started[name][width + 1] = 0
    return started


def _widen(out: Tensor, attended: int, heads: int, rows: int) -> Tensor:
    """(d + 2, inner + heads * columns) to (d + 2, inner + heads * rows * columns): every row like the one row."""
    values, keys = out[:, :attended], out[:, attended:].unflatten(1, (heads, 1, -1))
    widened = keys.expand(-1, -1, rows, -1).flatten(1)
    return torch.cat((values, widened), 1)


def _check(source: NetworkConfig, target: NetworkConfig) -> None:
    wanted = replace(target, task="stereo", windows=tuple((1, columns) for _, columns in target.windows))  # type: ignore[arg-type]
    if target.task != "flow" or source != wanted or source.attention != "match" or source.first_attention != "self":
        raise InputError(
            "A flow network starts from stereo weights of the same network with one-row windows, as rt-flow does "
            "from rt; these differ in more. Start from a flow checkpoint, or leave --start out."
        )
