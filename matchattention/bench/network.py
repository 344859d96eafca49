"""A whole network: from uint8 images on the device to both full-resolution fields."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from matchattention.bench.kernels import by_name, idle_share, profile_pass
from matchattention.bench.scenes import image_pair
from matchattention.bench.timing import forget_peak, growth_exponent, measure, peak_bytes
from matchattention.errors import InputError, first_line
from matchattention.models.flops import count_flops
from matchattention.models.network import LARGE, MatchNetwork
from matchattention.ops import kernels
from matchattention.runtime.precision import choose_precision
from matchattention.runtime.runtime import Mode, Runtime, fuses_well

# Height, width px; multiples of 32.
LARGE_SIZES = {"2K": (1088, 2048), "4K": (2176, 3840), "8K": (4320, 7680)}
# Scales of these divide as those of 1024x512 do: Triton compiles nothing again for them.
PARITY_SIZES = ((512, 1024), (512, 2048), (1024, 4096))


def load_or_create(name: str) -> tuple[MatchNetwork, bool]:
    """The network with its shipped weights where there are any, else with random ones; and which of the two."""
    from matchattention.models import checkpoint
    from matchattention.models.registry import create_model

    try:
        return checkpoint.load(name), True
    except InputError:
        torch.manual_seed(0)
        return create_model(name), False


def nothing(results: dict[str, Any]) -> None:
    """For those who wait for the end."""


def time_mode(
    model: MatchNetwork,
    shape: tuple[int, int],
    device: torch.device,
    precision: str,
    mode: Mode,
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Median time of one pair in one mode, and how long the first result took; or why it failed."""
    left, right, _ = image_pair(*shape, device)
    try:
        forget_peak(device)
        begin = time.perf_counter()
        match = Runtime(model, device, precision, mode)
        match(left, right)
        ready = time.perf_counter() - begin
        peak = peak_bytes(device)
        timing = measure(lambda: match(left, right), device, seconds)
        result = {**timing.to_dict(), "peak_bytes": peak, "ready_s": ready}
        memory = "" if peak is None else f", {peak / 2**30:.2f} GiB"
        say(f"  {precision} {mode:14s} {result['median_ms']:9.3f} ms{memory}, first result after {ready:.1f} s")
        return result
    except Exception as error:
        say(f"  {precision} {mode:14s} failed: {first_line(error)}")
        return {"failed": first_line(error)}
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()


def profile_mode(
    model: MatchNetwork, shape: tuple[int, int], device: torch.device, precision: str, mode: Mode
) -> dict[str, Any]:
    """The kernels of one pass in one mode; see `profile_pass`."""
    left, right, _ = image_pair(*shape, device)
    match = Runtime(model, device, precision, mode)
    return profile_pass(lambda: match(left, right))


@contextlib.contextmanager
def plain_operations() -> Iterator[None]:
    """Exact arithmetic in plain PyTorch: fp32 kernels of ours, needed by nothing else, would first be compiled."""
    settings = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    has_kernel = kernels.has_kernel
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    kernels.has_kernel = lambda tokens: False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = settings
        kernels.has_kernel = has_kernel


def parity(
    model: MatchNetwork, device: torch.device, precision: str, shape: tuple[int, int], mode: Mode = "eager"
) -> dict[str, Any]:
    """Mean and largest difference between a precision and fp32: positions must not lose digits far to the right."""
    height, width = shape
    left, right, _ = image_pair(height, width, device)
    with plain_operations():
        match = Runtime(model, device, "fp32", "eager")
        match.network.use_backend("reference")
        exact = match(left, right)
    rounded = Runtime(model, device, precision, mode)(left, right)
    difference = (exact - rounded)[..., 0].abs()
    quarter = max(1, width // 4)
    return {
        "width": width,
        "height": height,
        "mode": mode,
        "mean_px": difference.mean().item(),
        "max_px": difference.max().item(),
        "mean_px_first_quarter": difference[:, :, :quarter].mean().item(),
        "mean_px_last_quarter": difference[:, :, -quarter:].mean().item(),
    }


def usual_modes(model: MatchNetwork, device: torch.device, precision: str) -> list[Mode]:
    """Those that suit the device and the network, fastest first."""
    if device.type != "cuda":
        return ["eager"]
    fused: list[Mode] = ["fused-graph"] if fuses_well(model, device, choose_precision(precision, device)) else []
    return [*fused, "eager-graph", "eager"]


def pixels_of_all_passes(height: int, width: int) -> int:
    """Pixels the network runs on: a large image's, and those of the passes at half resolution that it starts from."""
    halved = pixels_of_all_passes(-(-height // 2), -(-width // 2)) if max(height, width) > LARGE else 0
    return height * width + halved


def bench_network(
    device: torch.device,
    name: str = "rt",
    shape: tuple[int, int] = (512, 1024),
    precision: str = "auto",
    modes: list[Mode] | None = None,
    seconds: float = 1.0,
    large: bool = True,
    with_parity: bool = True,
    with_kernels: bool = False,
    say: Callable[[str], None] = print,
    keep: Callable[[dict[str, Any]], object] = nothing,
) -> dict[str, Any]:
    """Time a network in every mode, its precision, and its growth with the image; failures are recorded.

    Everything is timed before anything is profiled.

    Args:
        device: where.
        name: of a registered network.
        shape: (H, W) px.
        precision: "auto", "fp32", "fp16" or "bf16".
        modes: of `Runtime`; by default `usual_modes`.
        seconds: measuring time of each mode.
        large: whether to time 2K, 4K and 8K images too.
        with_parity: whether to compare with fp32.
        with_kernels: whether to keep the table of kernels of each captured mode and of the large images, not only
            MatchAttention's share.
        say: takes lines of progress.
        keep: takes the results so far after each part.
    """
    model, trained = load_or_create(name)
    half = precision if precision != "auto" else ("fp16" if device.type == "cuda" else "fp32")
    modes = modes or usual_modes(model, device, half)
    results: dict[str, Any] = {
        "network": name,
        "trained_weights": trained,
        "shape": list(shape),
        "precision": half,
        "flops": count_flops(model.config, *shape),
        "parameters": sum(p.numel() for p in model.parameters()),
        "modes": {},
    }
    say(f"{name} {shape[1]}x{shape[0]}, {results['flops'] / 1e9:.1f} GFLOP")
    for mode in modes:
        results["modes"][mode] = time_mode(model, shape, device, half, mode, seconds, say)
        keep(results)
    ran = [mode for mode in modes if "median_ms" in results["modes"][mode]]
    fastest: Mode = min(ran, key=lambda mode: results["modes"][mode]["median_ms"], default="eager")
    if large:
        results["large"] = {}
        for label, size in LARGE_SIZES.items():
            say(f"{label}: {size[1]}x{size[0]}")
            timed = time_mode(model, size, device, half, fastest, seconds / 2, say)
            results["large"][label] = {"shape": list(size), "mode": fastest, **timed}
            keep(results)
        _add_growth(results, say)
        keep(results)
    if device.type == "cuda":
        for mode in ran:
            row = results["modes"][mode]
            _add_profile(row, model, shape, device, half, mode, with_kernels and mode != "eager", say)
            keep(results)
        _add_operator_share(results, say)
        keep(results)
    if with_parity and half != "fp32":
        results["parity_with_fp32"] = []
        for size in PARITY_SIZES:
            results["parity_with_fp32"].append(_parity_row(model, device, half, size, fastest, say))
            keep(results)
    if device.type == "cuda" and with_kernels:
        for label, row in results.get("large", {}).items():
            if "median_ms" in row:
                say(f"{label}:")
                _add_profile(row, model, LARGE_SIZES[label], device, half, fastest, True, say)
                row["kernels"] = by_name(row.get("kernels", []))
                keep(results)
    return results


def _add_growth(results: dict[str, Any], say: Callable[[str], None]) -> None:
    """Exponents of time and memory over the large images' pixels, and of time over the pixels of all passes."""
    fine = [row for row in results["large"].values() if "median_ms" in row]
    if len(fine) < 2:
        return
    pixels = [float(row["shape"][0] * row["shape"][1]) for row in fine]
    passes = [float(pixels_of_all_passes(*row["shape"])) for row in fine]
    times = [row["median_ms"] for row in fine]
    results["growth_exponent"] = growth_exponent(pixels, times)
    results["growth_exponent_over_all_passes"] = growth_exponent(passes, times)
    say(
        f"time grows with pixels^{results['growth_exponent']:.3f}, "
        f"with the pixels of all passes^{results['growth_exponent_over_all_passes']:.3f}"
    )
    if all(row["peak_bytes"] for row in fine):
        results["memory_growth_exponent"] = growth_exponent(pixels, [float(row["peak_bytes"]) for row in fine])
        say(f"memory grows with pixels^{results['memory_growth_exponent']:.3f}")


def _add_operator_share(results: dict[str, Any], say: Callable[[str], None]) -> None:
    """The operator's own kernels, which the captured pass has by themselves, beside the fused pass."""
    fused, captured = (results["modes"].get(mode, {}) for mode in ("fused-graph", "eager-graph"))
    if "busy_us" not in fused or "match_attention" not in captured.get("attention_us", {}):
        return
    own = captured["attention_us"]["match_attention"]
    results["operator_beside_fused_pass"] = {
        "operator_us": own,
        "fused_busy_us": fused["busy_us"],
        "share": own / fused["busy_us"],
    }
    say(f"  the operator by itself (as captured): {own:.0f} us, {100 * own / fused['busy_us']:.1f} % of the fused pass")


def _add_profile(
    row: dict[str, Any],
    model: MatchNetwork,
    shape: tuple[int, int],
    device: torch.device,
    precision: str,
    mode: Mode,
    with_kernels: bool,
    say: Callable[[str], None],
) -> None:
    try:
        found = profile_mode(model, shape, device, precision, mode)
    except Exception as error:
        row["profile"] = {"failed": first_line(error)}
        say(f"  {mode} could not be profiled: {first_line(error)}")
        return
    finally:
        torch.cuda.empty_cache()
    table = found.pop("kernels")
    row |= found
    row["idle_share"] = idle_share(found["busy_us"], row["median_ms"])
    if with_kernels:
        row["kernels"] = table
        for kernel in table[:15]:
            say(f"    {kernel['total_us']:7.1f} us {kernel['launches']:4d} x {kernel['name'][:60]} {kernel['grid']}")
    say(
        f"  {mode}: {found['launches']} kernels, {found['busy_us']:.0f} us busy, "
        f"idle between them {100 * row['idle_share']:.1f} %, "
        f"{100 * found['attention_share']:.1f} % in {', '.join(found['attention_us']) or 'no attention kernel'}"
    )


def _parity_row(
    model: MatchNetwork,
    device: torch.device,
    precision: str,
    size: tuple[int, int],
    mode: Mode,
    say: Callable[[str], None],
) -> dict[str, Any]:
    try:
        row = parity(model, device, precision, size, mode)
    except Exception as error:
        say(f"  parity at width {size[1]} failed: {first_line(error)}")
        return {"width": size[1], "height": size[0], "failed": first_line(error)}
    say(f"  {precision} {mode} against fp32 at width {size[1]}: mean {row['mean_px']:.4f} px")
    return row
