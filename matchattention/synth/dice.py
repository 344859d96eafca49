"""Random numbers by counting: sample i of seed s is the same whatever batch it is drawn in.

Every number is a hash of (seed, sample, draw, element), so nothing depends on the order in which scenes are
made, and a stream resumes anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MULTIPLY = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_PAGE = 2048  # numbers per sample hashed at once: small operations cost time, not numbers


def _signed(x: int) -> int:
    x &= _MASK
    return x - (1 << 64) if x >> 63 else x


def _scramble(x: int) -> int:
    """SplitMix64's finaliser on a Python integer."""
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _scramble_tensor(x: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64; the masks make the arithmetic shifts logical."""
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def scalar_uniform(seed: int, index: int, purpose: int) -> float:
    """One number in [0, 1) on the host, for choices that shape the computation itself."""
    return _scramble(_scramble(seed * _MULTIPLY + purpose) + index * _MULTIPLY) / 2.0**64


class Dice:
    """Draws for a set of samples; each call is a new independent draw for every sample.

    Args:
        seed: of the stream.
        indices: the samples' numbers.
        device: where the draws live.
        domain: separates users of the same seed and samples.
    """

    def __init__(self, seed: int, indices: Sequence[int], device: torch.device | str, domain: int = 0) -> None:
        self.count = len(indices)
        self.device = torch.device(device)
        keys = [_signed(_scramble(_scramble(seed * _MULTIPLY + domain) + i * _MULTIPLY)) for i in indices]
        self._keys = torch.tensor(keys, dtype=torch.int64).to(self.device, non_blocking=True)
        self._page = 0
        self._used = _PAGE
        self._pool = torch.empty((self.count, 0))
        self._step = torch.arange(_PAGE, dtype=torch.int64, device=self.device) * _signed(_MULTIPLY)

    def unit(self, *shape: int) -> Tensor:
        """(B, *shape) uniform in (0, 1), fp32. A view of a page that is hashed at once."""
        elements = math.prod(shape)
        if elements > _PAGE:
            raise ValueError(f"a draw of {elements} numbers exceeds a page of {_PAGE}")
        if self._used + elements > _PAGE:
            base = self._keys + _signed(_scramble(self._page * 0xD1342543DE82EF95))
            bits = _scramble_tensor(base[:, None] + self._step)
            self._pool = ((bits >> 40) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24).add_(2.0**-25)
            self._page += 1
            self._used = 0
        start = self._used
        self._used += elements
        strides, stride = [_PAGE], 1
        for side in reversed(shape):
            strides.insert(1, stride)
            stride *= side
        return self._pool.as_strided((self.count, *shape), strides, start)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """(B, *shape) uniform in (low, high)."""
        return (self.unit(*shape) * (high - low)).add_(low)

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """(B, *shape) whose logarithm is uniform."""
        return self.uniform(math.log(low), math.log(high), *shape).exp_()

    def normal(self, mean: float, deviation: float, *shape: int) -> Tensor:
        """(B, *shape) Gaussian, by Box and Muller."""
        radius = self.unit(*shape).log().mul_(-2.0 * deviation * deviation).sqrt_()
        return (self.unit(*shape) * (2.0 * math.pi)).cos_().mul_(radius).add_(mean)

    def chance(self, probability: float | Tensor, *shape: int) -> Tensor:
        """(B, *shape) bool, true with the given probability."""
        return self.unit(*shape) < probability

    def integer(self, low: int, high: int, *shape: int) -> Tensor:
        """(B, *shape) int64 in low ... high - 1."""
        return (low + torch.floor(self.unit(*shape) * (high - low))).long().clamp(max=high - 1)

    def choice(self, weights: Sequence[float], *shape: int) -> Tensor:
        """(B, *shape) int64 index drawn with the given weights."""
        total = sum(weights)
        edges, running = [], 0.0
        for weight in weights[:-1]:
            running += weight / total
            edges.append(running)
        u = self.unit(*shape)
        index = torch.zeros_like(u, dtype=torch.int64)
        for edge in edges:
            index += u > edge
        return index
