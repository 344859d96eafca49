"""A whole network: from uint8 images on the device to both full-resolution fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from matchattention.bench.report import first_line
from matchattention.bench.scenes import image_pair
from matchattention.bench.timing import growth_exponent, measure
from matchattention.errors import InputError
from matchattention.inference.deploy import InferencePlan, Mode, compile_for_inference
from matchattention.models.flops import count_flops
from matchattention.models.network import MatchNetwork

# Height, width px; multiples of 32.
LARGE_SIZES = {"2K": (1088, 2048), "4K": (2176, 3840), "8K": (4320, 7680)}
PARITY_WIDTHS = (1024, 2048, 4096)


def load_or_create(name: str) -> tuple[MatchNetwork, bool]:
    """The network with its shipped weights where there are any, else with random ones; and which of the two."""
    from matchattention.models import checkpoint
    from matchattention.models.registry import create_model

    try:
        return checkpoint.load(name), True
    except InputError:
        torch.manual_seed(0)
        return create_model(name), False


def time_modes(
    model: MatchNetwork,
    shape: tuple[int, int],
    device: torch.device,
    precision: str,
    modes: list[Mode],
    seconds: float,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Median time of one pair in each mode."""
    left, right, _ = image_pair(*shape, device)
    results: dict[str, Any] = {}
    for mode in modes:
        try:
            plan = compile_for_inference(model, shape, device, precision, mode)

            def run(plan: InferencePlan = plan) -> None:
                plan(left, right)

            results[mode] = measure(run, device, seconds).to_dict()
            if mode in ("capture", "eager") and device.type == "cuda":
                results[mode]["attention_share"], results[mode]["launches"] = attention_share(run)
            peak = results[mode]["peak_bytes"]
            memory = "" if peak is None else f", {peak / 2**30:.2f} GiB"
            say(f"  {precision} {mode:8s} {results[mode]['median_ms']:9.3f} ms{memory}")
            del plan, run
        except Exception as error:
            results[mode] = {"failed": first_line(error)}
            say(f"  {precision} {mode:8s} failed: {first_line(error)}")
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return results


def _fastest(timed: dict[str, Any]) -> Mode:
    """The mode with the least time among those that ran."""
    ran = {mode: row["median_ms"] for mode, row in timed.items() if "median_ms" in row}
    return min(ran, key=ran.__getitem__) if ran else "eager"  # type: ignore[return-value, arg-type]


def attention_share(run: Callable[[], None]) -> tuple[float, int]:
    """Part of the GPU's time inside MatchAttention, and the number of kernels of one pass."""
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        run()
        torch.cuda.synchronize()
    inside = total = 0.0
    launches = 0
    for event in record.key_averages():
        time = event.self_device_time_total
        if time <= 0:
            continue
        total += time
        launches += event.count
        if "match_attention" in event.key:
            inside += time
    return inside / max(total, 1e-9), launches


def parity(
    model: MatchNetwork, device: torch.device, precision: str, widths: tuple[int, ...], mode: Mode = "eager"
) -> list[dict[str, Any]]:
    """Mean and largest difference between a precision and fp32, by image width: positions must not lose digits."""
    results = []
    for width in widths:
        height = 512 if width <= 1024 else 256
        left, right, _ = image_pair(height, width, device)
        allowed = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        try:
            exact = compile_for_inference(model, (height, width), device, "fp32", "eager")(left, right)
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = allowed
        rounded = compile_for_inference(model, (height, width), device, precision, mode)(left, right)
        difference = (exact - rounded)[..., 0].abs()
        quarter = max(1, width // 4)
        results.append(
            {
                "width": width,
                "height": height,
                "mean_px": difference.mean().item(),
                "max_px": difference.max().item(),
                "mean_px_first_quarter": difference[:, :, :quarter].mean().item(),
                "mean_px_last_quarter": difference[:, :, -quarter:].mean().item(),
            }
        )
    return results


def bench_network(
    device: torch.device,
    name: str = "rt",
    shape: tuple[int, int] = (512, 1024),
    precision: str = "auto",
    modes: list[Mode] | None = None,
    seconds: float = 1.0,
    large: bool = True,
    with_parity: bool = True,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Time a network in every mode, its precision, and its growth with the image; failures are recorded."""
    model, trained = load_or_create(name)
    half = precision if precision != "auto" else ("fp16" if device.type == "cuda" else "fp32")
    modes = modes or (["eager", "capture", "fused"] if device.type == "cuda" else ["eager"])
    results: dict[str, Any] = {
        "network": name, "trained_weights": trained, "shape": list(shape), "precision": half,
        "flops": count_flops(model.config, *shape),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    say(f"{name} {shape[1]}x{shape[0]}, {results['flops'] / 1e9:.1f} GFLOP")
    results["modes"] = time_modes(model, shape, device, half, modes, seconds, say)
    if with_parity and half != "fp32":
        try:
            results["parity_with_fp32"] = parity(model, device, half, PARITY_WIDTHS, _fastest(results["modes"]))
            for row in results["parity_with_fp32"]:
                say(f"  {half} against fp32 at width {row['width']}: mean {row['mean_px']:.4f} px")
        except Exception as error:
            results["parity_with_fp32"] = {"failed": first_line(error)}
            say(f"  parity failed: {first_line(error)}")
    if large:
        fastest: Mode = _fastest(results["modes"])
        results["large"] = {}
        for label, size in LARGE_SIZES.items():
            say(f"{label}: {size[1]}x{size[0]}")
            timed = time_modes(model, size, device, half, [fastest], seconds / 2, say)[fastest]
            results["large"][label] = {"shape": list(size), **timed}
        fine = [row for row in results["large"].values() if "median_ms" in row]
        if len(fine) > 1:
            pixels = [float(row["shape"][0] * row["shape"][1]) for row in fine]
            results["growth_exponent"] = growth_exponent(pixels, [row["median_ms"] for row in fine])
            say(f"time grows with pixels^{results['growth_exponent']:.3f}")
    return results
