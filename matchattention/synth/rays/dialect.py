"""One source for two machines: functions written here-style run in Triton kernels and on torch tensors.

The geometry and texture formulas of the renderer are long, and two hand-kept copies would drift apart. They
are written once, element-wise, in the common subset of Triton's language and torch (``tl.where``, ``tl.sqrt``,
arithmetic, ``if`` on scalars). On a GPU Triton compiles them; `as_torch` gives the same function with ``tl``
standing for torch, which is the CPU path and the reference of the kernels. Only the loops around them (tiles
in Triton, image slices in torch) exist twice.

Rules of the dialect: no early ``return``; constants are ``tl.constexpr`` globals; integers are int32 and wrap
around; a branch is taken on scalars only (`any_lane` makes one from a mask).
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
except ImportError:
    triton = None
    HAS_TRITON = False


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if isinstance(condition, (bool, int)):
        return yes if condition else no
    return torch.where(condition, yes, no)


def _minimum(a: Any, b: Any) -> Any:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.minimum(a, b)
    if isinstance(a, Tensor):
        return a.clamp(max=b)
    return b.clamp(max=a) if isinstance(b, Tensor) else min(a, b)


def _maximum(a: Any, b: Any) -> Any:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.maximum(a, b)
    if isinstance(a, Tensor):
        return a.clamp(min=b)
    return b.clamp(min=a) if isinstance(b, Tensor) else max(a, b)


def _unary(function: Any) -> Any:
    def apply(x: Any) -> Any:
        return function(x) if isinstance(x, Tensor) else float(function(torch.tensor(x)))

    return apply


class TorchLanguage:
    """The part of ``triton.language`` that the dialect uses, on torch tensors and Python numbers."""

    int32 = torch.int32
    float32 = torch.float32
    where = staticmethod(_where)
    minimum = staticmethod(_minimum)
    maximum = staticmethod(_maximum)
    abs = staticmethod(abs)
    sqrt = staticmethod(_unary(torch.sqrt))
    floor = staticmethod(_unary(torch.floor))
    sin = staticmethod(_unary(torch.sin))
    cos = staticmethod(_unary(torch.cos))
    exp = staticmethod(_unary(torch.exp))
    exp2 = staticmethod(_unary(torch.exp2))
    log2 = staticmethod(_unary(torch.log2))
    static_range = range

    @staticmethod
    def constexpr(value: Any) -> Any:
        return value


def _torch_any_lane(mask: Any) -> bool:
    return bool(mask.any()) if isinstance(mask, Tensor) else bool(mask)


def _torch_as_int(x: Any) -> Any:
    return x.to(torch.int32) if isinstance(x, Tensor) else int(x)


def _torch_as_float(x: Any) -> Any:
    return x.to(torch.float32) if isinstance(x, Tensor) else float(x)


def _torch_at(row: Any, index: Any) -> Any:
    return row[index.long()] if isinstance(index, Tensor) else row[index]


if HAS_TRITON:
    jit = triton.jit

    @triton.jit
    def any_lane(mask):
        """Whether any element of the block is true: a scalar to branch on."""
        return tl.max(mask.to(tl.int32)) > 0

    @triton.jit
    def as_int(x):
        """Truncate to int32."""
        return x.to(tl.int32)

    @triton.jit
    def as_float(x):
        """Convert an int32 to fp32."""
        return x.to(tl.float32)

    @triton.jit
    def at(row, index):
        """Entry `index` of a table row: memory in Triton, a list of columns or a flat tensor in torch."""
        return tl.load(row + index)
else:
    tl = TorchLanguage

    def jit(function: Any) -> Any:
        """Without Triton the functions are torch functions from the start."""
        return function

    any_lane, as_int, as_float, at = _torch_any_lane, _torch_as_int, _torch_as_float, _torch_at

_TWINS: dict[Any, Any] = {}
_NAMED = {"any_lane": _torch_any_lane, "as_int": _torch_as_int, "as_float": _torch_as_float, "at": _torch_at}


def as_torch(function: Any) -> Any:
    """The torch twin of a function of the dialect: the same code with ``tl`` meaning torch.

    Args:
        function: decorated with `jit`.

    Returns:
        A plain function of tensors and numbers.
    """
    if not HAS_TRITON:
        return function
    if function not in _TWINS:
        source = function.fn
        twin_globals = dict(source.__globals__)
        twin_globals["tl"] = TorchLanguage
        for name in source.__code__.co_names:
            value = twin_globals.get(name)
            if name in _NAMED:
                twin_globals[name] = _NAMED[name]
            elif isinstance(value, tl.constexpr):
                twin_globals[name] = value.value
            elif callable(getattr(value, "fn", None)):
                twin_globals[name] = as_torch(value)
        _TWINS[function] = types.FunctionType(source.__code__, twin_globals, source.__name__, source.__defaults__)
    return _TWINS[function]
