"""Pairs to test geometry with: a textured scene of two layers, seen from two places."""

import numpy as np


def texture(height: int, width: int, seed: int) -> np.ndarray:
    """Smooth random grey texture (H, W) uint8 with detail at several scales."""
    generator = np.random.default_rng(seed)
    total = np.zeros((height, width))
    for step in (4, 8, 24):
        coarse = generator.normal(size=(height // step + 3, width // step + 3))
        y, x = np.mgrid[:height, :width] / step
        y0, x0 = y.astype(int), x.astype(int)
        fy, fx = y - y0, x - x0
        total += (
            coarse[y0, x0] * (1 - fy) * (1 - fx)
            + coarse[y0, x0 + 1] * (1 - fy) * fx
            + coarse[y0 + 1, x0] * fy * (1 - fx)
            + coarse[y0 + 1, x0 + 1] * fy * fx
        )
    return np.clip(128 + 40 * total, 0, 255).astype(np.uint8)


def pair(height: int = 200, width: int = 320, far: int = 8, near: int = 20, seed: int = 0) -> tuple:
    """Left and right (H, W, 3) uint8 and the left disparity (H, W): a near box before a far wall."""
    margin = 64
    wall, box = texture(height, width + margin, seed), texture(height, width + margin, seed + 1)
    top, bottom, start, end = height // 4, 3 * height // 4, width // 3, 2 * width // 3
    left, right = wall[:, :width].copy(), wall[:, far : far + width].copy()
    left[top:bottom, start:end] = box[top:bottom, start:end]
    right[top:bottom, start - near : end - near] = box[top:bottom, start:end]
    disparity = np.full((height, width), float(far), np.float32)
    disparity[top:bottom, start:end] = near
    return np.repeat(left[..., None], 3, 2), np.repeat(right[..., None], 3, 2), disparity
