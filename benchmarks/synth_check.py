"""Check and time the scene renderer on a CUDA machine, in about a minute.

    python benchmarks/synth_check.py OUTPUT_FOLDER

Prints the agreement of the Triton kernels with their torch twins on the same scenes, pairs per second and peak
memory at two sizes, pairs per second sustained for 20 s with scenes drawn in processes, and saves a few samples as
.npy (image, disparity, occlusion) to look at elsewhere.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from matchattention.synth import cast_torch, cast_triton, photo_bank, shade_torch, shade_triton
from matchattention.synth import render as rendering
from matchattention.synth.blocks import Block
from matchattention.synth.config import PRESETS
from matchattention.synth.scene import convert, draw_scenes
from matchattention.synth.stream import DRAW_AT_ONCE, SceneStream
from matchattention.synth.tables import photo_pyramid


def parity(device: torch.device) -> dict[str, float]:
    """Same tables through both backends: share of rays that hit the same thing, and how far colours differ."""
    config = replace(PRESETS["mixed"], layouts={"room": 1.0, "tabletop": 1.0, "street": 1.0, "forest": 1.0})
    size = (96, 160)
    host = draw_scenes(config, 5, range(4), size)
    scene = convert(host, lambda tensor: tensor.to(device))
    views = rendering.two_views(scene, rendering.choose_baseline(scene, config, size))
    photos = photo_pyramid(None, device)
    on_device = rendering.prepare(scene, views, config, photos)
    on_host = rendering.Prepared(*(convert(part, torch.Tensor.cpu) for part in on_device))
    offsets = rendering.sample_offsets(config.samples, device)
    depth, hit = cast_triton.cast(on_device.tables, on_device.cameras, size, offsets)
    twin_depth, twin_hit = cast_torch.cast(on_host.tables, on_host.cameras, size, offsets.cpu())
    same = hit.cpu() == twin_hit
    relative = ((depth.cpu() - twin_depth).abs() / twin_depth)[same]
    image = shade_triton.shade(on_device.shading, on_device.tables, on_device.cameras, offsets, depth, hit)
    twin = shade_torch.shade(on_host.shading, on_host.tables, on_host.cameras, offsets.cpu(), depth.cpu(), hit.cpu())
    difference = (image.cpu() - twin).abs() / (0.01 + twin.abs())
    return {
        "same_hit": same.float().mean().item(),
        "depth_max_relative": relative.max().item(),
        "colour_mean_relative": difference.mean().item(),
        "colour_p999_relative": _quantile(difference, 0.999),
    }


def _quantile(values: torch.Tensor, share: float) -> float:
    flat = values.flatten().sort().values
    return flat[int(share * (len(flat) - 1))].item()


def speed(device: torch.device, size: tuple[int, int], batch: int, batches: int, sensor: str) -> dict[str, float]:
    """Pairs per second of the whole stream, and of its stages."""
    stream = SceneStream(replace(PRESETS["mixed"], sensor=sensor), size, batch, 1, device)
    for _ in range(3):
        stream.next()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    for _ in range(batches):
        stream.next()
    launched = time.perf_counter() - start
    torch.cuda.synchronize()
    total = time.perf_counter() - start
    return {
        "pairs_per_s": batch * batches / total,
        "host_share": launched / total,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def sustained(device: torch.device, size: tuple[int, int], batch: int, seconds: float) -> dict[str, float]:
    """Pairs per second of the whole stream over a time that no stock of drawn scenes lasts for.

    The host stays two batches ahead of the GPU, as in training; `launch_ms` is what a batch costs it and
    `waiting_share` the time it waited for scenes.
    """
    stream = SceneStream(PRESETS["mixed"], size, batch, 1, device)
    waited = 0.0
    wait_for_block = stream._await_block

    def timed_wait(number: int) -> Block:
        nonlocal waited
        began = time.perf_counter()
        block = wait_for_block(number)
        waited += time.perf_counter() - began
        return block

    stream._await_block = timed_wait  # type: ignore[method-assign]
    for _ in range(3):
        stream.next()
    torch.cuda.synchronize()
    waited, launching, batches = 0.0, 0.0, 0
    ahead: deque[torch.cuda.Event] = deque()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        began = time.perf_counter()
        stream.next()
        launching += time.perf_counter() - began
        batches += 1
        event = torch.cuda.Event()
        event.record()
        ahead.append(event)
        if len(ahead) > 2:
            ahead.popleft().synchronize()
    torch.cuda.synchronize()
    total = time.perf_counter() - start
    return {
        "pairs_per_s": batch * batches / total,
        "seconds": total,
        "workers": stream.workers,
        "launch_ms": (launching - waited) * 1e3 / batches,
        "waiting_share": waited / total,
    }


def stages(device: torch.device, size: tuple[int, int], count: int = 16) -> dict[str, float]:
    """Milliseconds of GPU time per pair of each stage, and of one core for drawing as the workers do."""
    config = PRESETS["mixed"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    draw_scenes(config, 9, range(8), size, 0)
    start = time.perf_counter()
    host = draw_scenes(config, 9, range(DRAW_AT_ONCE), size, 0)
    drawing = (time.perf_counter() - start) * 1e3 / DRAW_AT_ONCE
    torch.set_num_threads(threads)
    scene = convert(host, lambda tensor: tensor[:count].to(device))
    offsets = rendering.sample_offsets(config.samples, device)
    photos = photo_pyramid(photo_bank.load(), device)
    result = {"draw_host": drawing}

    def timed(name: str, work: object) -> object:
        for _ in range(2):
            value = work()  # type: ignore[operator]
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            value = work()  # type: ignore[operator]
        end.record()
        torch.cuda.synchronize()
        result[name] = begin.elapsed_time(end) / 5 / count
        return value

    baseline = timed("probe", lambda: rendering.choose_baseline(scene, config, size))
    ready = timed(
        "tables_and_shadow", lambda: rendering.prepare(scene, rendering.two_views(scene, baseline), config, photos)
    )
    depth, hit = timed("cast", lambda: cast_triton.cast(ready.tables, ready.cameras, size, offsets))
    timed("shade", lambda: shade_triton.shade(ready.shading, ready.tables, ready.cameras, offsets, depth, hit))
    timed("render_all", lambda: rendering.render(scene, config, size, photos))
    return result


def save_samples(device: torch.device, folder: Path) -> None:
    """A few pairs for eyes elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    batch = SceneStream(PRESETS["mixed"], (384, 576), 16, 11, device).next()
    np.save(folder / "images.npy", torch.stack((batch.image0, batch.image1), 1).round().byte().cpu().numpy())
    np.save(folder / "disparity.npy", (-batch.field0[..., 0]).half().cpu().numpy())
    np.save(folder / "occluded.npy", batch.occluded0.cpu().numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder for samples and the report")
    parser.add_argument("--batches", type=int, default=10, help="batches to time")
    parser.add_argument("--seconds", type=float, default=20.0, help="time of the sustained measurement")
    arguments = parser.parse_args()
    device = torch.device("cuda")
    report: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    start = time.perf_counter()
    save_samples(device, arguments.output)
    report["first_batch_s"] = time.perf_counter() - start
    report["parity"] = parity(device)
    for size in ((320, 640), (512, 768)):
        for sensor in ("default", "clean"):
            report[f"{size[0]}x{size[1]}_{sensor}"] = speed(device, size, 32, arguments.batches, sensor)
        report[f"{size[0]}x{size[1]}_ms_per_pair"] = stages(device, size)
    report["sustained_320x640"] = sustained(device, (320, 640), 32, arguments.seconds)
    text = json.dumps(report, indent=1)
    (arguments.output / "synth_check.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
