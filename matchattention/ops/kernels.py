"""Whether Triton's kernels can run; every operation that has one asks here."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

# Asked once here: a compiler that traces a call cannot follow the question.
TRITON_IS_INSTALLED = importlib.util.find_spec("triton") is not None


def has_kernel(tokens: Tensor) -> bool:
    """Whether Triton's kernels serve these tokens."""
    return tokens.is_cuda and tokens.dtype != torch.float64 and TRITON_IS_INSTALLED
