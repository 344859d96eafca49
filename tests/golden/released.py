"""Weights and images of the released kind of network, from a seed alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

HEIGHT, WIDTH = 64, 96
STRIDE = 4  # of the full-resolution field that is kept


def state_of(shapes: dict[str, list[int]], seed: int) -> dict[str, Tensor]:
    """fp32 weights under the released names: matrices that keep their inputs' size, norms near one, scales near 0.2."""
    random = np.random.RandomState(seed)
    state = {}
    for name, shape in sorted(shapes.items()):
        values = random.standard_normal(shape)
        if name.endswith("field_scale"):
            values = 0.2 + 0.02 * values
        elif "norm" in name or "res_scale" in name:
            values = 1 + 0.1 * values
        elif len(shape) > 1:
            values = values * (0.7 / np.prod(shape[1:]) ** 0.5)
        else:
            values = 0.05 * values
        state[name] = torch.from_numpy(np.ascontiguousarray(values, np.float32))
    return state


def images_of(seed: int) -> tuple[Tensor, Tensor]:
    """Two (1, 3, H, W) images in [0, 255]: smooth texture, the right one three pixels further left."""
    random = np.random.RandomState(seed)
    coarse = random.uniform(0, 255, (1, 3, HEIGHT // 4, WIDTH // 4 + 2))
    wide = torch.nn.functional.interpolate(torch.from_numpy(coarse), scale_factor=4, mode="bilinear")
    return wide[..., :WIDTH].contiguous(), wide[..., 3 : WIDTH + 3].contiguous()
