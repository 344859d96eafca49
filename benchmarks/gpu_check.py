"""Parity of every kernel with its plain twin, on the GPU that is here, in about a minute.

    python benchmarks/gpu_check.py
    python benchmarks/gpu_check.py --seconds 90 --no-timing --nice 10 --workers 4     beside a training on the same GPU

Prints a line a case as it is done and never stops at the first failure. The fused network and the CUDA graph are
checked here, the single kernels meanwhile in worker processes: compiling them is most of the time. Errors are against
fp64; a case passes when the kernel is at most twice as far off as plain PyTorch is when it computes in the same dtype.
Exit code 1 when a case failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.bench.network import load_or_create, plain_operations
from matchattention.bench.scenes import image_pair
from matchattention.ops.depthwise import convglu_mix, convglu_mix_plain, depthwise3x3, depthwise3x3_plain
from matchattention.ops.match_attention.reference import match_attention_reference
from matchattention.ops.match_attention.triton_backend import match_attention_triton
from matchattention.runtime.capture import capture
from matchattention.runtime.deploy import InferencePlan, Mode, compile_for_inference
from matchattention.runtime.kernels.norm import layer_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NETWORK_FLOOR = 1e-3  # px: what a network of kernels may be off beside twice the plain one's error
NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def operator_inputs(size, heads, channels, dtype, per_head, fused):
    """q, k, v as slices of one projection (as the network has them) or apart, and piecewise smooth positions."""
    torch.manual_seed(0)
    width = heads * channels
    if fused:
        joint = torch.randn(*size, 3 * width, device=DEVICE).to(dtype)
        q, k, v = (joint[..., i * width : (i + 1) * width].unflatten(-1, (heads, channels)) for i in range(3))
    else:
        q, k, v = (torch.randn(*size, heads, channels, device=DEVICE).to(dtype) for _ in range(3))
    position = torch.randn(*size, heads if per_head else 1, 2, device=DEVICE) * 3
    position[:, :, ::7] -= 9.3
    return q, k, v, position


def with_gradients(function: Callable, tensors, cotangents):
    """Outputs and gradients of a function, detached."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    outputs = function(*leaves)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    given = [c.to(o.dtype) for c, o in zip(cotangents, outputs)]
    return [*(o.detach() for o in outputs), *torch.autograd.grad(list(outputs), leaves, given)]


class Outcome(NamedTuple):
    """A case's line, and whether it was fine; None: it was left out."""

    text: str
    good: bool | None


def outcome(name: str, good: bool, details: str) -> Outcome:
    return Outcome(f"{'ok  ' if good else 'FAIL'} {name:46s} {details}", good)


def compare(name: str, kernel: Callable, plain: Callable, tensors) -> Outcome:
    """Whether a kernel is as good as the plain version."""
    with torch.no_grad():
        outputs = plain(*tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    cotangents = [torch.randn_like(o) for o in outputs]
    exact = with_gradients(plain, [t.double() for t in tensors], [c.double() for c in cotangents])
    usual = with_gradients(plain, tensors, cotangents)
    start = time.perf_counter()
    found = with_gradients(kernel, tensors, cotangents)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    good, columns = True, []
    for e, u, f in zip(exact, usual, found):
        error = (f.double() - e).abs().max().item()
        floor = 4 * torch.finfo(f.dtype).eps * max(1.0, e.abs().max().item())
        allowed = 2 * (u.double() - e).abs().max().item() + floor
        fine = error <= allowed
        good &= fine
        columns.append(f"{error:.1e}{'' if fine else '>' + format(allowed, '.1e')}")
    return outcome(name, good, f"{seconds:5.1f}s  {' '.join(columns)}")


class OperatorCase(NamedTuple):
    """One call of the operator, forward and backward."""

    name: str
    size: tuple[int, int, int]
    heads: int
    channels: int
    window: tuple[int, int]
    similarity: str
    per_head: bool
    fused: bool
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.name} {NAMES[self.dtype]}"

    def run(self) -> Outcome:
        tensors = operator_inputs(self.size, self.heads, self.channels, self.dtype, self.per_head, self.fused)

        def kernel(q, k, v, r):
            return match_attention_triton(q, k, v, r, self.window, self.similarity, True)

        def plain(q, k, v, r):
            return match_attention_reference(q, k, v, r, self.window, self.similarity, True)

        return compare(str(self), kernel, plain, tensors)


class ConvolutionCase(NamedTuple):
    """A depthwise convolution or the middle of a ConvGLU, forward and backward."""

    gated: bool
    channels: int
    dtype: torch.dtype

    def __str__(self) -> str:
        name = "ConvGLU mix" if self.gated else "depthwise 3x3"
        return f"{name}, {self.channels} channels {NAMES[self.dtype]}"

    def run(self) -> Outcome:
        weight, bias = torch.randn(self.channels, 1, 3, 3, device=DEVICE), torch.randn(self.channels, device=DEVICE)
        width = 2 * self.channels if self.gated else self.channels
        x = torch.randn(2, 19, 37, width, device=DEVICE).to(self.dtype)
        kernel, plain = (convglu_mix, convglu_mix_plain) if self.gated else (depthwise3x3, depthwise3x3_plain)
        return compare(str(self), kernel, plain, (x, weight, bias))


Case = OperatorCase | ConvolutionCase


def expensive_cases() -> list[Case]:
    """The operator on 4x4 windows: XL's shapes (24 channels a head) and the paper's table S3 (64)."""
    fp32, fp16, bf16 = torch.float32, torch.float16, torch.bfloat16
    return [
        OperatorCase("4x4 l1 heads 4x64 shared", (1, 20, 27), 4, 64, (4, 4), "l1", False, False, fp32),
        *(
            OperatorCase("4x4 l1 heads 4x24 per head", (1, 20, 27), 4, 24, (4, 4), "l1", True, False, dtype)
            for dtype in (fp16, bf16, fp32)
        ),
        OperatorCase("4x4 dot heads 2x8 per head, fused", (2, 20, 27), 2, 8, (4, 4), "dot", True, True, fp16),
    ]


def cheap_cases() -> list[Case]:
    """RT's shapes (1D windows, four heads of 2 to 16 channels; its convolutions), and odd ones."""
    cases: list[Case] = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        cases += [
            OperatorCase("1x4 l1 heads 4x2 per head, fused", (2, 33, 70), 4, 2, (1, 4), "l1", True, True, dtype),
            OperatorCase("1x4 l1 heads 4x2 shared, fused", (2, 33, 70), 4, 2, (1, 4), "l1", False, True, dtype),
            OperatorCase("1x4 l1 heads 4x16 shared", (2, 16, 32), 4, 16, (1, 4), "l1", False, False, dtype),
        ]
        cases += [ConvolutionCase(gated, channels, dtype) for channels in (64, 512, 30) for gated in (False, True)]
    cases += [
        OperatorCase("1x4 dot heads 3x5 per head", (1, 9, 31), 3, 5, (1, 4), "dot", True, False, torch.float32),
        OperatorCase("1x8 l1 heads 4x4 shared", (1, 9, 31), 4, 4, (1, 8), "l1", False, False, torch.float32),
    ]
    return cases


def graph_case() -> Outcome:
    """The operator, forward and backward, replayed from a CUDA graph on new inputs."""
    tensors = [t.requires_grad_() for t in operator_inputs((1, 16, 40), 4, 2, torch.float16, False, False)]

    def step():
        out, weights = match_attention_triton(*tensors, (1, 4), "l1", True)
        return torch.autograd.grad(out.float().square().sum() + weights.square().sum(), tensors)

    graph, replayed = capture(step)
    with torch.no_grad():
        for t in tensors:
            t.mul_(0.5)
    graph.replay()
    good = all(torch.allclose(a, b, atol=2e-3) for a, b in zip(replayed, step()))
    return outcome("CUDA graph, forward and backward", good, "")


def norm_case() -> Outcome:
    """The captured networks' LayerNorm against PyTorch's, in fp16: both round the same fp32 once."""
    torch.manual_seed(0)
    worst = 0.0
    for width in (42, 386, 1538):  # RT's and XL's widest rows with positions
        weight = torch.rand(width, device=DEVICE).add(0.5).half()
        tokens = torch.randn(2, 33, 70, width, device=DEVICE).mul(3).add(1).half()
        exact = F.layer_norm(tokens.double(), (width,), weight.double())
        worst = max(worst, (layer_norm(tokens, weight, 1e-5) - exact).abs().max().item() / exact.abs().max().item())
    return outcome("LayerNorm fp16", worst < torch.finfo(torch.float16).eps, f"{worst:.1e} of the largest")


def network_case(shape: tuple[int, int], mode: Mode, plans: dict[str, InferencePlan]) -> Outcome:
    """RT's kernels on a pair that matches, against the network itself in fp32; beside it plain PyTorch in fp16.

    The mean hangs on few tokens: where a cross position passes an integer, the attention weights move on by one key,
    and as features they jump. Rounding decides which side such a token falls on, in either of the two. With random
    weights it would decide everything: matchings are nearly uniform then, and uniform is the initial estimate's
    threshold. The plan goes into `plans`, to be timed later.
    """
    model, _ = load_or_create("rt")
    left, right, _ = image_pair(*shape, torch.device(DEVICE))
    start = time.perf_counter()
    plan = compile_for_inference(model, shape, DEVICE, "fp16", mode)
    found = plan(left, right).clone()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    with plain_operations():
        exact, rounded = (
            compile_for_inference(model.use_backend("reference"), shape, DEVICE, precision, "eager")(left, right)
            for precision in ("fp32", "fp16")
        )
    errors = [(field - exact)[..., 0].abs() for field in (found, rounded)]
    quick, eager = (error.mean().item() for error in errors)
    middle = " and ".join(f"{error.median().item():.4f}" for error in errors)
    details = f"{seconds:5.1f}s  mean px from fp32: {mode} {quick:.4f}, plain fp16 {eager:.4f}; medians {middle}"
    name = f"RT {shape[1]}x{shape[0]} fp16 {mode}"
    plans[name] = plan
    return outcome(name, quick <= 2 * eager + NETWORK_FLOOR, details)


def milliseconds(plan: InferencePlan) -> float:
    """Mean time of a replay."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    plan.replay()
    begin.record()
    for _ in range(100):
        plan.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 100


def checked(name: str, run: Callable[[], Outcome], until: float) -> Outcome:
    """The outcome of a case; none is begun after `until`, on the clock that all processes share."""
    if time.time() > until:
        return Outcome(f"out  {name}: no time left", None)
    try:
        return run()
    except Exception:
        return Outcome(f"FAIL {name}\n{traceback.format_exc(limit=6)}", False)


def checked_case(case: Case, until: float) -> Outcome:
    return checked(str(case), case.run, until)


def settle(nice: int) -> None:
    """One thread a process, and behind more important ones."""
    torch.set_num_threads(1)
    if nice:
        os.nice(nice)


def main() -> int:
    """Run every case; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no case after this (default: 300)")
    parser.add_argument("--workers", type=int, help="processes beside this one (default: cores - 2, 8 at most)")
    parser.add_argument("--nice", type=int, default=0, help="lower the priority on the CPU by this, 0 to 19")
    parser.add_argument("--no-timing", action="store_true", help="parity alone: the GPU has other work")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    until = time.time() + arguments.seconds
    settle(arguments.nice)
    chip = torch.cuda.get_device_name() if DEVICE == "cuda" else "CPU"
    print(f"torch {torch.__version__}, {chip}")
    print("     seconds to the first result; max errors: out, weights, then gradients of q, k, v, position", flush=True)
    results: list[Outcome] = []

    def note(result: Outcome) -> None:
        results.append(result)
        print(result.text, flush=True)

    def note_future(future: Future[Outcome]) -> None:
        error = future.exception()
        note(Outcome(f"FAIL a worker: {error}", False) if error else future.result())

    cases = [case for case in (*cheap_cases(), *expensive_cases()) if arguments.only in str(case)]
    workers = arguments.workers or max(1, min(8, len(cases), (os.cpu_count() or 1) - 2))
    plans: dict[str, InferencePlan] = {}
    own: dict[str, Callable[[], Outcome]] = {
        "RT fused": lambda: network_case((512, 1024), "fused", plans),
        "RT fused, odd size": lambda: network_case((375, 1242), "fused", plans),
        "RT lean": lambda: network_case((512, 1024), "capture", plans),
        "CUDA graph": graph_case,
        "LayerNorm": norm_case,
    }
    spawning = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    with ProcessPoolExecutor(workers, spawning, settle, (arguments.nice,)) as pool:
        for case in cases:
            pool.submit(checked_case, case, until).add_done_callback(note_future)
        if DEVICE == "cuda":
            for name, run in own.items():
                if arguments.only in name:
                    note(checked(name, run, until))
    for name, plan in plans.items() if not arguments.no_timing else ():
        print(f"     {name}: {milliseconds(plan):.3f} ms")  # now that the workers have gone
    left_out = sum(result.good is None for result in results)
    print(
        f"{sum(result.good is True for result in results)} of {len(results) - left_out} cases fine"
        + (f", {left_out} left out" if left_out else "")
    )
    return 1 if any(result.good is False for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
