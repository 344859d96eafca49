"""The operator against the hardware's limit: time, memory, growth, for smooth and for random positions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from matchattention.bench.scenes import relative_positions
from matchattention.bench.timing import copy_bandwidth, growth_exponent, launch_ms, measure_kernels
from matchattention.errors import first_line
from matchattention.ops.match_attention import match_attention
from matchattention.ops.match_attention.library import match_attention_flops


class Limits(NamedTuple):
    """What the machine allows.

    Attributes:
        bandwidth: bytes a second of a plain copy.
        launch_ms: time of a kernel that changes one number.
    """

    bandwidth: float
    launch_ms: float


class Case(NamedTuple):
    """One call of the operator."""

    name: str
    batch: int
    height: int
    width: int
    heads: int
    channels: int
    window: tuple[int, int]
    dtype: torch.dtype
    per_head: bool
    positions: str = "smooth"
    need_weights: bool = True


# The paper's table S3: 256 channels, 4 heads, 4x4 window, fp32.
SWEEP = (196, 256, 384, 512, 768, 1024, 1448, 2048)


def table_s3(side: int, positions: str = "smooth") -> Case:
    """One row of the paper's table S3."""
    return Case(f"s3-{side}", 1, side, side, 4, 64, (4, 4), torch.float32, False, positions)


def rt_cases(dtype: torch.dtype, height: int = 512, width: int = 1024) -> Iterator[Case]:
    """What RT calls on an image of this size: self and cross attention at every scale, both views."""
    for scale, channels in zip((32, 16, 8, 4), (16, 8, 4, 2)):
        for kind in ("self", "cross"):
            yield Case(
                f"rt-1/{scale}-{kind}",
                2,
                height // scale,
                width // scale,
                4,
                channels,
                (1, 4),
                dtype,
                per_head=kind == "self",
                need_weights=kind == "cross",
            )


def rt_cases_of_4k(dtype: torch.dtype) -> Iterator[Case]:
    """RT's largest calls on a 4K image: narrow heads where memory sets the time and not the launch."""
    for case in rt_cases(dtype, 2176, 3840):
        if case.name.startswith("rt-1/4-"):
            yield case._replace(name=case.name.replace("rt", "rt-4K"))


def inputs_of(case: Case, device: torch.device) -> list[Tensor]:
    """q, k, v and positions."""
    generator = torch.Generator(device=device).manual_seed(0)
    size = (case.batch, case.height, case.width, case.heads, case.channels)
    features = [torch.randn(size, generator=generator, device=device).to(case.dtype) for _ in range(3)]
    heads = case.heads if case.per_head else 1
    return [*features, relative_positions(case.positions, *size[:3], heads, device)]


def attend(case: Case, tensors: list[Tensor]) -> tuple[Tensor, Tensor | None]:
    """The call itself."""
    q, k, v, position = tensors
    return match_attention(q, k, v, position, window=case.window, need_weights=case.need_weights)


def bytes_of(*tensors: Tensor | None) -> int:
    """Bytes of memory behind tensors."""
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


def run_case(case: Case, device: torch.device, limits: Limits, backward: bool, seconds: float) -> dict[str, Any]:
    """Time one case, forward and where asked forward + backward, beside the floors of its bytes.

    The floor reads each input once and writes each output once at the bandwidth of a copy; for the backward pass
    inputs are the forward's and the outputs' gradients, outputs the inputs' gradients. Small maps cannot reach it: a
    kernel takes its launch, whatever it moves; so the time is also compared with the floor and one launch a pass.
    Times are the GPU's own, without the launch from Python.
    """
    tensors = inputs_of(case, device)

    def forward() -> tuple[Tensor, Tensor | None]:
        with torch.no_grad():
            return attend(case, tensors)

    out, weights = forward()
    moved = bytes_of(*tensors, out, weights)
    flops = match_attention_flops(tensors[0].shape, tensors[2].shape, *case.window)
    held = bytes_of(out, weights)
    del out, weights
    resting = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    timing = measure_kernels(forward, device, seconds)
    result: dict[str, Any] = {
        "name": case.name,
        "shape": list(tensors[0].shape),
        "window": list(case.window),
        "positions": case.positions,
        "dtype": str(case.dtype).removeprefix("torch."),
        "position_per_head": case.per_head,
        "weights_output": case.need_weights,
        "flops": flops,
        "forward": _beside_floor(timing.to_dict(), moved, limits, launches=1),
    }
    if timing.peak_bytes is not None:
        # What the call adds on top of what was there, over the outputs it has to hold.
        extra = timing.peak_bytes - resting - held
        result["forward"]["peak_over_inputs_and_outputs"] = (moved + extra) / moved
    if backward:
        try:
            both = _time_backward(case, tensors, device, seconds).to_dict()
            moved += _backward_bytes(tensors, held)
            result["forward_backward"] = _beside_floor(both, moved, limits, launches=2)
        except torch.OutOfMemoryError as error:  # it needs about three times as much as the forward pass
            result["forward_backward"] = {"failed": first_line(error)}
    return result


def _backward_bytes(tensors: list[Tensor], output_bytes: int) -> int:
    return 2 * bytes_of(*tensors) + output_bytes


def _time_backward(case: Case, tensors: list[Tensor], device: torch.device, seconds: float) -> Any:
    leaves = [t.detach().requires_grad_() for t in tensors]
    with torch.no_grad():
        example = attend(case, tensors)
    cotangents = [torch.randn_like(t) for t in example if t is not None]

    def both() -> None:
        outputs = [t for t in attend(case, leaves) if t is not None]
        torch.autograd.grad(outputs, leaves, cotangents)

    return measure_kernels(both, device, seconds)


def backward_ways(device: torch.device, seconds: float) -> Iterator[dict[str, Any]]:
    """The two ways to k's and v's gradients, atomics and gathering, for narrow, middling and wide heads."""
    from matchattention.ops.match_attention.triton_backward import backward

    cases = [next(iter(rt_cases(torch.float16))), *list(rt_cases(torch.float16))[-2:]]
    cases += [
        Case("xl-1/8", 2, 64, 128, 4, 48, (4, 4), torch.float16, True),
        table_s3(512),
        table_s3(512, "random"),
    ]
    for case in cases:
        q, k, v, position = inputs_of(case, device)
        grad_out = torch.randn_like(v)
        row: dict[str, Any] = {"name": case.name, "positions": case.positions}
        for way, atomic in (("atomics", True), ("gathered", False)):
            run = functools.partial(backward, grad_out, None, q, k, v, position, case.window, False, atomic)
            row[f"{way}_ms"] = measure_kernels(run, device, seconds).median_ms
        yield row


def _beside_floor(timing: dict[str, Any], moved: int, limits: Limits, launches: int) -> dict[str, Any]:
    floor = moved / limits.bandwidth * 1e3
    reachable = floor + launches * limits.launch_ms
    return {
        **timing,
        "bytes": moved,
        "floor_ms": floor,
        "over_floor": timing["median_ms"] / floor,
        "over_floor_and_launches": timing["median_ms"] / reachable,
    }


def _said(timing: dict[str, Any]) -> str:
    if "failed" in timing:
        return f"failed: {timing['failed']}"
    return (
        f"{timing['median_ms']:8.4f} ms, {timing['over_floor']:5.2f} x floor, "
        f"{timing['over_floor_and_launches']:5.2f} with launches"
    )


def bench_operator(
    device: torch.device,
    seconds: float = 0.3,
    most_side: int = 2048,
    say: Callable[[str], None] = print,
    keep: Callable[[dict[str, Any]], object] = lambda results: None,
) -> dict[str, Any]:
    """The whole operator benchmark; a case that fails is recorded with its reason and the others go on.

    `keep` takes the results so far after each case.
    """
    limits = Limits(copy_bandwidth(device), launch_ms(device))
    say(f"copy bandwidth {limits.bandwidth / 1e9:.0f} GB/s, the smallest kernel {1e3 * limits.launch_ms:.2f} us")
    results: dict[str, Any] = {
        "copy_bandwidth_bytes_per_s": limits.bandwidth,
        "launch_ms": limits.launch_ms,
        "cases": [],
    }
    sides = [side for side in SWEEP if side <= most_side]
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    cases = [(table_s3(side), side in (512, 1024, 2048)) for side in sides]
    cases += [(table_s3(side, "random"), False) for side in sides if side in (512, 1024)]
    if most_side >= 256:
        cases += [(case, True) for case in rt_cases(dtype)]
    if most_side >= 2048:
        cases += [(case, True) for case in rt_cases_of_4k(dtype)]
    for case, backward in cases:
        label = f"{case.name} {case.positions}"
        try:
            result = run_case(case, device, limits, backward, seconds)
        except Exception as error:
            results["cases"].append({"name": case.name, "positions": case.positions, "failed": first_line(error)})
            say(f"{label:24s} failed: {first_line(error)}")
            keep(results)
            continue
        results["cases"].append(result)
        keep(results)
        text = _said(result["forward"]) + (f"; with backward {_said(result['forward_backward'])}" if backward else "")
        say(f"{label:24s} {text}")
    if device.type == "cuda":
        results["backward_ways"] = []
        try:
            for row in backward_ways(device, seconds):
                results["backward_ways"].append(row)
                say(
                    f"backward of {row['name']} {row['positions']}: atomics {row['atomics_ms']:.3f} ms, "
                    f"gathered {row['gathered_ms']:.3f} ms"
                )
                keep(results)
        except Exception as error:
            results["backward_ways"].append({"failed": first_line(error)})
            say(f"backward ways failed: {first_line(error)}")
    timed = [c for c in results["cases"] if "forward" in c]
    swept = [c for c in timed if c["name"].startswith("s3") and c["positions"] == "smooth"]
    if len(swept) > 1:
        tokens = [float(c["shape"][1] * c["shape"][2]) for c in swept]
        results["growth_exponent"] = growth_exponent(tokens, [c["forward"]["median_ms"] for c in swept])
        say(f"time grows with tokens^{results['growth_exponent']:.3f}")
    keep(results)
    return results
