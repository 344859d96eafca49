"""`matchattention doctor`: what this machine has, which backends run and why not, parity of each."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from matchattention.errors import InputError, first_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Distribution, what it is for, and the extra that brings it.
_OPTIONAL = (
    ("triton", "fast kernels on a GPU", None),
    ("opencv-python-headless", "rectification, video, cameras, SGBM", "opencv"),
    ("nicegui", "the page in the browser", "app"),
    ("tensorboard", "training curves", "logging"),
    ("h5py", "Spring's files", "spring"),
    ("OpenEXR", ".exr files", "exr"),
    ("rerun-sdk", "predict --rerun", "rerun"),
)
_SLOW = ("compile",)  # minutes of compilation
# A backend may be this many times as far from the truth as plain PyTorch in the same number format.
_ALLOWED = 2.0


class Parity(NamedTuple):
    """How far a backend is from the reference in fp64, beside the reference in the backend's own format.

    Attributes:
        values: largest error of output and weights.
        plain_values: the same of plain PyTorch.
        gradients: largest error of the gradients, relative to their size.
        plain_gradients: the same of plain PyTorch.
    """

    values: float
    plain_values: float
    gradients: float
    plain_gradients: float

    @property
    def fine(self) -> bool:
        floor = 1e-6
        return (
            self.values <= _ALLOWED * self.plain_values + floor
            and self.gradients <= _ALLOWED * self.plain_gradients + floor
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="also try backends that first compile for minutes")


def run(arguments: argparse.Namespace) -> None:
    import torch

    from matchattention import __version__

    print(f"matchattention {__version__}, Python {platform.python_version()}, PyTorch {torch.__version__}")
    for line in _machine():
        print(line)
    print("\nOptional packages")
    for name, purpose, extra in _OPTIONAL:
        print(f"  {name:24}{_version(name) or 'missing':12}{purpose}{_how(name, extra)}")
    print("\nModels")
    for line in _models():
        print(line)
    print("\nBackends of match_attention (error against fp64, in brackets plain PyTorch's own)")
    broken = []
    for device in _devices():
        for name in _backends():
            if name in _SLOW and not arguments.all:
                print(f"  {name:12}{device.type:6}not tried: it compiles first, which takes a while; use --all")
                continue
            broken += [f"{name} on {device}"] * (not _examine(name, device))
    broken += _kernels()
    if broken:
        raise InputError(
            f"{', '.join(broken)} gives wrong results here: use another backend and report this, with the text above."
        )


def _machine() -> Iterator[str]:
    import torch

    from matchattention import threads
    from matchattention.runtime.memory import available_bytes

    free = available_bytes(torch.device("cpu")) / 2**30
    yield f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {free:.1f} GiB of memory free"
    yield f"{torch.get_num_threads()} {threads.in_words()}"
    if not torch.cuda.is_available():
        built = "PyTorch is a CPU build" if torch.version.cuda is None else "no driver or no device"
        yield f"no CUDA GPU ({built}): everything runs on the CPU"
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        yield (
            f"cuda:{index} {properties.name}, {properties.total_memory / 2**30:.0f} GiB, "
            f"compute capability {properties.major}.{properties.minor}, CUDA {torch.version.cuda}"
        )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _how(distribution: str, extra: str | None) -> str:
    if _version(distribution) is not None:
        return ""
    return f": pip install 'matchattention[{extra}]'" if extra else f": pip install {distribution}"


def _models() -> Iterator[str]:
    from matchattention.models.checkpoint import read_header, shipped

    trained = shipped()
    if not trained:
        yield "  no trained weights are installed"
    for name, path in trained.items():
        config, metadata = read_header(path)
        licence = metadata.get("license", metadata.get("licence", "licence not stated"))
        yield f"  {name:24}{config.task:8}{path.stat().st_size / 2**20:.1f} MiB, {licence}"


def _devices() -> list[torch.device]:
    import torch

    return [torch.device("cpu")] + [torch.device("cuda")] * torch.cuda.is_available()


def _backends() -> list[str]:
    """Those that compute something, and something else than the reference that they are compared with."""
    from matchattention.ops.match_attention.backends import BACKENDS

    return [name for name in BACKENDS if name not in ("reference", "opaque")]


def _kernels() -> list[str]:
    """A line for each kernel that networks and the renderer have; the names of those that are wrong."""
    from matchattention.bench import parity

    device = _devices()[-1]
    print("\nKernels beside their plain twins (error, in brackets what is allowed; of networks in px)")
    reason, made = parity.why_not(device), parity.cases(device)
    if reason is not None:
        kinds = ", ".join(dict.fromkeys(name.split(",")[0].split(":")[0] for name in made))
        print(f"  skipped, {reason}: {kinds}")
        return []
    broken = []
    for name, run_case in made.items():
        try:
            found = run_case()
        except Exception as error:
            # Too little shared memory, a driver that is too old: the runtime takes the slower way and says so too.
            print(f"  {name:34}does not run: {first_line(error)}")
            continue
        print(f"  {name:34}{'ok' if found.fine else 'WRONG'}  {found.error:.1e} ({found.allowed:.1e})")
        broken += [name] * (not found.fine)
    return broken


def _examine(name: str, device: torch.device) -> bool:
    """Print a line for each format and window; False when a backend runs but is wrong."""
    import torch

    from matchattention.ops.match_attention.backends import BACKENDS

    formats = [torch.float32] + [torch.float16, torch.bfloat16] * (device.type == "cuda")
    fine = True
    for dtype in formats:
        for window in ((1, 4), (4, 4)):
            label = f"  {name:12}{device.type:6}{str(dtype).removeprefix('torch.'):10}{window[0]}x{window[1]}  "
            try:
                reason = BACKENDS[name].why_not(*_problem(device, dtype), window, "l1")
                if reason is not None:
                    print(f"  {name:12}{device.type:6}does not run: {reason}")
                    return True
                parity = measure(name, device, dtype, window)
            except Exception as error:
                # Whatever a compiler or driver throws is an answer to "why not".
                print(f"{label}does not run: {first_line(error)}")
                continue
            verdict = "ok" if parity.fine else "WRONG"
            fine &= parity.fine
            gradients = f"gradients {parity.gradients:.1e} ({parity.plain_gradients:.1e})"
            if not BACKENDS[name].gradients:
                gradients = "no gradients"
            print(f"{label}{verdict}  values {parity.values:.1e} ({parity.plain_values:.1e}), {gradients}")
    return fine


def measure(name: str, device: torch.device, dtype: torch.dtype, window: tuple[int, int]) -> Parity:
    """Parity of one backend on a small problem with sub-pixel and out-of-view positions."""
    import torch

    from matchattention.ops.match_attention.backends import BACKENDS

    inputs, pulled = _problem(device, dtype), BACKENDS[name].gradients
    truth = _results("reference", tuple(value.double() for value in inputs), window, pulled)
    plain = _results("reference", inputs, window, pulled)
    ours = _results(name, inputs, window, pulled)

    def furthest(results: list[Tensor], indices: range) -> float:
        errors = []
        for index in indices:
            scale = max(1.0, float(truth[index].abs().max()))
            errors.append(float((results[index].double() - truth[index]).abs().max()) / scale)
        return max(errors, default=0.0)

    values, gradients = range(2), range(2, len(truth))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return Parity(
        furthest(ours, values), furthest(plain, values), furthest(ours, gradients), furthest(plain, gradients)
    )


def _problem(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = (2, 12, 40, 4, 8)
    features = [torch.randn(shape, generator=generator).to(device, dtype) for _ in range(3)]
    offsets = torch.randn(2, 12, 40, 4, 2, generator=generator) * 12 + 0.3
    return features[0], features[1], features[2], offsets.to(device)


def _results(name: str, inputs: tuple[Tensor, ...], window: tuple[int, int], pulled: bool) -> list[Tensor]:
    """Output, weights, and where they are pulled at the gradients of q, k, v and the positions."""
    import torch

    from matchattention.ops.match_attention.function import match_attention

    leaves = [value.detach().clone().requires_grad_(pulled) for value in inputs]
    out, weights = match_attention(leaves[0], leaves[1], leaves[2], leaves[3], window=window, backend=name)
    if not pulled:
        return [out, weights]
    generator = torch.Generator().manual_seed(1)
    pull_out = torch.randn(out.shape, generator=generator).to(out)
    pull_weights = torch.randn(weights.shape, generator=generator).to(weights)
    gradients = torch.autograd.grad([out, weights], leaves, [pull_out, pull_weights])
    return [out.detach(), weights.detach(), *gradients]
