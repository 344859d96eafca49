"""Parity of every kernel with its plain twin, on the GPU that is here, in about a minute.

    python benchmarks/gpu_check.py

Prints a line a case and never stops at the first failure. Errors are against fp64; a case passes when the kernel is at
most twice as far off as plain PyTorch is when it computes in the same dtype. Exit code 1 when a case failed.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.ops.depthwise import convglu_mix, convglu_mix_plain, depthwise3x3, depthwise3x3_plain
from matchattention.ops.reference import match_attention_reference
from matchattention.ops.triton_backend import match_attention_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
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


def compare(name: str, kernel: Callable, plain: Callable, tensors, dtype) -> bool:
    """Print one line; True when the kernel is as good as the plain version."""
    try:
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
        verdict = "ok  " if good else "FAIL"
        print(f"{verdict} {name:40s} {NAMES[dtype]} {seconds:5.1f}s  {' '.join(columns)}", flush=True)
        return good
    except Exception:
        print(f"FAIL {name:46s} {NAMES[dtype]}\n{traceback.format_exc(limit=3)}", flush=True)
        return False


def operator_cases():
    """Shapes of RT (1D, four heads of 2 to 16 channels), of XL (2D, 24 and 96) and of the paper's table S3 (2D, 64)."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        yield "1x4 l1 heads 4x2 per head, fused", (2, 33, 70), 4, 2, (1, 4), "l1", True, True, dtype
        yield "1x4 l1 heads 4x2 shared, fused", (2, 33, 70), 4, 2, (1, 4), "l1", False, True, dtype
        yield "1x4 l1 heads 4x16 shared", (2, 16, 32), 4, 16, (1, 4), "l1", False, False, dtype
        yield "4x4 l1 heads 4x24 per head", (1, 20, 27), 4, 24, (4, 4), "l1", True, False, dtype
    yield "1x4 dot heads 3x5 per head", (1, 9, 31), 3, 5, (1, 4), "dot", True, False, torch.float32
    yield "1x8 l1 heads 4x4 shared", (1, 9, 31), 4, 4, (1, 8), "l1", False, False, torch.float32
    yield "4x4 l1 heads 4x64 shared", (1, 20, 27), 4, 64, (4, 4), "l1", False, False, torch.float32
    yield "4x4 dot heads 2x8 per head, fused", (2, 20, 27), 2, 8, (4, 4), "dot", True, True, torch.float16


def convolution_cases():
    """Channels of RT's encoder and decoder, and odd ones."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for channels in (64, 512, 30):
            yield channels, dtype


def graph_case() -> bool:
    """The operator, forward and backward, replayed from a CUDA graph on new inputs."""
    try:
        tensors = [t.requires_grad_() for t in operator_inputs((1, 16, 40), 4, 2, torch.float16, False, False)]

        def step():
            out, weights = match_attention_triton(*tensors, (1, 4), "l1", True)
            return torch.autograd.grad(out.float().square().sum() + weights.square().sum(), tensors)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            replayed = step()
        with torch.no_grad():
            for t in tensors:
                t.mul_(0.5)
        graph.replay()
        good = all(torch.allclose(a, b, atol=2e-3) for a, b in zip(replayed, step()))
        print(f"{'ok  ' if good else 'FAIL'} CUDA graph, forward and backward")
        return good
    except Exception:
        print(f"FAIL CUDA graph\n{traceback.format_exc(limit=3)}")
        return False


def fused_case() -> bool:
    """RT's fused kernels, with random weights that move positions, against the network itself in fp32."""
    try:
        from matchattention.inference.deploy import compile_for_inference
        from matchattention.models.registry import create_model

        torch.manual_seed(0)
        model = create_model("rt").eval().to(DEVICE)
        for name, parameter in model.named_parameters():
            if name.endswith("out.weight"):
                parameter.data[-2:] += 0.002 * torch.randn_like(parameter.data[-2:])
        pair = [torch.randint(0, 256, (1, 3, 512, 1024), dtype=torch.uint8, device=DEVICE) for _ in range(2)]
        exact = compile_for_inference(model, (512, 1024), DEVICE, "fp32", "eager")(*pair)
        start = time.perf_counter()
        plan = compile_for_inference(model, (512, 1024), DEVICE, "fp16", "fused")
        seconds = time.perf_counter() - start
        differences = {"fused": (plan(*pair) - exact)[..., 0].abs()}
        plain = compile_for_inference(model, (512, 1024), DEVICE, "fp16", "eager")
        differences["eager"] = (plain(*pair) - exact)[..., 0].abs()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(50):
            plan.replay()
        end.record()
        torch.cuda.synchronize()
        errors = {name: difference.mean().item() for name, difference in differences.items()}
        good = errors["fused"] <= 2 * errors["eager"] + 1e-3
        print(
            f"{'ok  ' if good else 'FAIL'} RT 1024x512 fp16 fused: {begin.elapsed_time(end) / 50:.3f} ms, ready in "
            f"{seconds:.1f} s; mean px from fp32: fused {errors['fused']:.4f}, eager fp16 {errors['eager']:.4f}"
        )
        return good
    except Exception:
        print(f"FAIL RT fused\n{traceback.format_exc(limit=6)}")
        return False


def main() -> int:
    """Run every case; the exit code."""
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'CPU'}")
    print("     max errors: out, weights, then gradients of q, k, v, relative position")
    results = []
    for name, size, heads, channels, window, similarity, per_head, fused, dtype in operator_cases():
        tensors = operator_inputs(size, heads, channels, dtype, per_head, fused)

        def kernel(q, k, v, r, window=window, similarity=similarity):
            return match_attention_triton(q, k, v, r, window, similarity, True)

        def plain(q, k, v, r, window=window, similarity=similarity):
            return match_attention_reference(q, k, v, r, window, similarity, True)

        results.append(compare(name, kernel, plain, tensors, dtype))
    for channels, dtype in convolution_cases():
        weight, bias = torch.randn(channels, 1, 3, 3, device=DEVICE), torch.randn(channels, device=DEVICE)
        x = torch.randn(2, 19, 37, channels, device=DEVICE).to(dtype)
        h = torch.randn(2, 19, 37, 2 * channels, device=DEVICE).to(dtype)
        name = f"depthwise 3x3, {channels} channels"
        results.append(compare(name, depthwise3x3, depthwise3x3_plain, (x, weight, bias), dtype))
        name = f"ConvGLU mix, {channels} channels"
        results.append(compare(name, convglu_mix, convglu_mix_plain, (h, weight, bias), dtype))
    if DEVICE == "cuda":
        results.append(graph_case())
        results.append(fused_case())
    print(f"{sum(results)} of {len(results)} cases fine")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
