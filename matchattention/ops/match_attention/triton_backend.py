"""The fused backend: Triton kernels forward and backward, no compiler needed on the user's machine."""

from __future__ import annotations

import os

import torch
from torch import Tensor

import matchattention.ops.match_attention.library  # noqa: F401  (registers the operator)

FEATURE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Keys of a window are unrolled in the kernel and held in registers.
MOST_KEYS = 64

# Channels of one head that a program can hold.
MOST_CHANNELS = 1024


def interprets() -> bool:
    """Whether Triton's kernels run in its interpreter, on the CPU, for tests."""
    return os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")


def why_not(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, window: tuple[int, int], similarity: str
) -> str | None:
    """One sentence that says why the kernels cannot run this call, or None when they can."""
    try:
        import triton  # noqa: F401
    except ImportError as error:
        return f"Triton cannot be imported ({error}); install it or use backend='reference'."
    if not q.is_cuda and not interprets():
        return f"The Triton backend needs tensors on a CUDA device, got {q.device}; use backend='reference'."
    if q.is_cuda and not torch.compiler.is_compiling() and torch.cuda.get_device_capability(q.device) < (8, 0):
        return "The Triton backend needs a GPU of compute capability 8.0 (Ampere) or later."
    if len({q.device, k.device, v.device, relative_position.device}) > 1:
        return "q, k, v and relative_position must be on one device."
    if q.dtype not in FEATURE_DTYPES:
        return f"The Triton backend computes fp32, fp16 and bf16 features, not {q.dtype}; use backend='reference'."
    if window[0] * window[1] > MOST_KEYS:
        return f"The Triton backend holds windows of at most {MOST_KEYS} keys, got {window[0]} x {window[1]}."
    if max(q.shape[-1], v.shape[-1]) > MOST_CHANNELS:
        return f"The Triton backend holds heads of at most {MOST_CHANNELS} channels, got {q.shape[-1]}."
    return None


def match_attention_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relative_position: Tensor,
    window: tuple[int, int],
    similarity: str,
    need_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """See :func:`matchattention.ops.match_attention`."""
    out, weights = torch.ops.matchattention.match_attention(
        q, k, v, relative_position, window[0], window[1], similarity == "dot", need_weights
    )
    return out, weights if need_weights else None
