"""The backends of the operator: each can say in a sentence why it cannot run a call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from matchattention.errors import InputError
from matchattention.ops.match_attention import planes, triton_backend
from matchattention.ops.match_attention.reference import FEW_CHANNELS, match_attention_reference

Result = tuple[Tensor, Tensor | None]


class Backend(NamedTuple):
    """One implementation of the operator.

    Attributes:
        name: what users pass as ``backend=``.
        why_not: sentence that says why this call cannot run here, or None when it can.
        run: the implementation; arguments as in ``match_attention_reference``.
        gradients: whether it has any.
    """

    name: str
    why_not: Callable[[Tensor, Tensor, Tensor, Tensor, tuple[int, int], str], str | None]
    run: Callable[[Tensor, Tensor, Tensor, Tensor, tuple[int, int], str, bool], Result]
    gradients: bool = True


@functools.cache
def _compiled_reference() -> Callable[..., Result]:
    return torch.compile(match_attention_reference, fullgraph=True, dynamic=False)


def _compile_why_not(*call: object) -> str | None:
    if torch.compiler.is_compiling():
        return None
    try:
        from torch._inductor.utils import is_big_gpu  # noqa: F401  (inductor is part of this build)
    except ImportError as error:
        return f"torch.compile is not usable in this build of PyTorch ({error})."
    return None


def _compile_run(*call: object) -> Result:
    if torch.compiler.is_compiling():  # an outer compile already covers the reference
        return match_attention_reference(*call)  # type: ignore[arg-type]
    return _compiled_reference()(*call)


def _opaque_why_not(q: Tensor, *call: object) -> str | None:
    if isinstance(q, FakeTensor):
        return None
    return "The opaque backend only counts: it takes fake tensors and gives shapes and FLOPs, no values."


def _opaque_run(
    q: Tensor, k: Tensor, v: Tensor, relative_position: Tensor, window: tuple[int, int], similarity: str, need: bool
) -> Result:
    import matchattention.ops.match_attention.library  # noqa: F401  (registers the operator)

    call = (q, k, v, relative_position, *window, similarity == "dot", need)
    out, weights = torch.ops.matchattention.match_attention(*call)
    return out, weights if need else None


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("triton", triton_backend.why_not, triton_backend.match_attention_triton),
        Backend("planes", planes.why_not, planes.match_attention_planes, gradients=False),
        Backend("reference", lambda *call: None, match_attention_reference),
        Backend("compile", _compile_why_not, _compile_run),
        Backend("opaque", _opaque_why_not, _opaque_run),
    )
}


def choose(name: str, call: tuple[Tensor, Tensor, Tensor, Tensor, tuple[int, int], str]) -> Backend:
    """The backend asked for, or for "auto" the fastest that can run the call: on a CPU planes where channels are few.

    An explicit request is never silently replaced: if that backend cannot run the call, its reason is raised.
    """
    if name == "auto":
        fastest = BACKENDS["triton" if call[0].is_cuda else "planes"]
        pays = call[0].is_cuda or call[0].shape[-1] <= FEW_CHANNELS
        return fastest if pays and fastest.why_not(*call) is None else BACKENDS["reference"]
    if name not in BACKENDS:
        raise InputError(f"There is no backend '{name}'; use auto, {', '.join(BACKENDS)}.")
    backend = BACKENDS[name]
    reason = backend.why_not(*call)
    if reason is not None:
        raise InputError(reason)
    return backend
