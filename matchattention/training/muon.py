"""Orthogonalised momentum for matrices (Muon): every direction of an update gets the same length.

Jordan et al. 2024, with the update's length independent of the matrix's shape as by Liu et al. 2025 ("Muon is scalable
for LLM training"), so that one learning rate and one weight decay serve matrices and all other parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic: singular values end up near one, fast rather than exactly
LENGTH = 0.8  # root mean square of an update; 0.2 is about AdamW's, which took steps too short for short trainings
LEAST_SIDE = 8  # thinner matrices have too few directions to be worth it


def is_matrix(parameter: Tensor) -> bool:
    """Whether a weight mixes channels: linear layers and full convolutions, not depthwise ones, norms or biases."""
    return parameter.dim() >= 2 and min(parameter.shape[0], parameter.shape[1]) >= LEAST_SIDE


def orthogonalise(matrices: Tensor) -> Tensor:
    """About U V^T of each matrix U S V^T by Newton-Schulz, in the matrices' own dtype.

    Args:
        matrices: (N, m, n) with m <= n. Rows and columns of zeros stay zero, so that padding changes nothing.
    """
    a, b, c = COEFFICIENTS
    x = matrices / (matrices.float().norm(dim=(-2, -1), keepdim=True).to(matrices.dtype) + 1e-7)
    for _ in range(ITERATIONS):
        squared = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(squared, squared, squared, beta=b, alpha=c), x, beta=a)
    return x


class _Bucket:
    """Matrices of similar shape, padded to one and stacked: one product for all of them.

    Attributes:
        momentum: (N, m, n) fp32.
        gradient: (N, m, n) fp32, where the gradients are collected.
        length: (N, 1, 1), what an orthogonalised matrix is multiplied with.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], shape: tuple[int, int]) -> None:
        self.parameters = list(parameters)
        device = self.parameters[0].device
        self.momentum = torch.zeros(len(self.parameters), *shape, device=device)
        self.gradient = torch.zeros_like(self.momentum)
        lengths = [LENGTH * max(_matrix(p.detach()).shape) ** 0.5 for p in self.parameters]
        self.length = torch.tensor(lengths, device=device).view(-1, 1, 1)

    def parts(self, stacked: Tensor) -> list[Tensor]:
        """Each parameter's own piece of a stacked tensor, as a matrix the way the parameter is one."""
        pieces = []
        for matrix, parameter in zip(stacked, self.parameters):
            rows, columns = _matrix(parameter.detach()).shape
            pieces.append(matrix[:rows, :columns] if rows <= columns else matrix[:columns, :rows].T)
        return pieces


def _matrix(tensor: Tensor, like: Tensor | None = None) -> Tensor:
    """(outputs, the rest) of a weight, in the order its memory has; a view of the weight itself."""
    like = tensor if like is None else like
    if like.dim() == 4 and not like.is_contiguous():  # channels-last
        tensor = tensor.permute(0, 2, 3, 1)
    return tensor.flatten(1)


def _padded(side: int) -> int:
    return max(32, 1 << (side - 1).bit_length())


class Muon:
    """The update of all matrices of a network; everything stays on the device and can be captured in a CUDA graph.

    Args:
        parameters: weights for which `is_matrix` holds.
        momentum: share of the past in the average of gradients.
        weight_decay: decoupled, times the learning rate.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], momentum: float, weight_decay: float) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay
        groups: dict[tuple[int, int], list[nn.Parameter]] = defaultdict(list)
        for parameter in parameters:
            short, long = sorted(_matrix(parameter.detach()).shape)
            groups[_padded(short), _padded(long)].append(parameter)
        self._buckets = [_Bucket(members, shape) for shape, members in groups.items()]
        on_gpu = bool(parameters) and parameters[0].device.type == "cuda"
        self._dtype = torch.bfloat16 if on_gpu else torch.float32

    def momenta(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Each parameter with its momentum, a live view with the parameter as a matrix."""
        return [pair for bucket in self._buckets for pair in zip(bucket.parameters, bucket.parts(bucket.momentum))]

    @torch.no_grad()
    def step(self, rate: Tensor, divisor: Tensor, finite: Tensor) -> None:
        """Update every matrix; where gradients are not `finite`, nothing changes.

        Args:
            rate: learning rate, a scalar on the device.
            divisor: of the gradients, for clipping.
            finite: a scalar bool on the device.
        """
        # No `where` with numbers: it would copy them to the device, which a graph's capture does not allow.
        fresh = finite.float() * (1 - self.momentum)
        size = finite.float() * -rate
        zero = torch.zeros_like(divisor)
        for bucket in self._buckets:
            weights = [_matrix(p.detach()) for p in bucket.parameters]
            for piece, parameter in zip(bucket.parts(bucket.gradient), bucket.parameters):
                if parameter.grad is not None:
                    piece.copy_(_matrix(parameter.grad, parameter))
            gradient = torch.where(finite, bucket.gradient / divisor, zero)
            bucket.momentum.lerp_(gradient, fresh)
            ahead = gradient.lerp(bucket.momentum, self.momentum)  # Nesterov's: one step further
            change = orthogonalise(ahead.to(self._dtype)).float() * (bucket.length * size)
            torch._foreach_mul_(weights, 1 + size * self.weight_decay)
            torch._foreach_add_(weights, bucket.parts(change))
