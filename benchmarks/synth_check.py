"""Check and time the scene renderer on a CUDA machine.

    python benchmarks/synth_check.py OUTPUT_FOLDER --seconds 120

Parts, the most important first: pairs per second sustained at two sizes with scenes drawn in processes, milliseconds
of each stage, agreement of the Triton kernels with their torch twins, a few samples to look at elsewhere, pairs per
second without the sensor. Each part is printed and written to OUTPUT_FOLDER/scenes-GPU.json as it is done, from where
benchmarks/performance_page.py takes it; none is begun after --seconds.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from matchattention.bench.report import write
from matchattention.synth.photos import photo_bank
from matchattention.synth.rays import cast_torch, cast_triton, shade_torch, shade_triton
from matchattention.synth.rays.tables import photo_pyramid
from matchattention.synth.stream import render as rendering
from matchattention.synth.stream.blocks import Block
from matchattention.synth.stream.drawing import DrawingPool, default_workers, shared_pool
from matchattention.synth.stream.scene_stream import DRAW_AT_ONCE, SceneStream
from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.scene import convert, draw_scenes


class Setup(NamedTuple):
    """What all parts share.

    Attributes:
        device: of the renderer.
        bank: photos, loaded once.
        pool: drawing processes: they end with the last one who holds them, and each takes seconds to start.
    """

    device: torch.device
    bank: Tensor | None
    pool: DrawingPool

    def stream(self, size: tuple[int, int], batch: int, seed: int, sensor: str = "default") -> SceneStream:
        config = replace(PRESETS["mixed"], sensor=sensor)
        return SceneStream(config, size, batch, seed, self.device, bank=self.bank)


def close(stream: SceneStream) -> None:
    """Ask for no more scenes: the next part shall have the cores for itself."""
    for block in stream._blocks.values():
        block.cancel()
    stream._blocks.clear()


def sustained(
    setup: Setup, size: tuple[int, int], seconds: float, sensor: str = "default", batch: int = 32
) -> dict[str, float]:
    """Pairs per second of the whole stream over a time that no stock of drawn scenes lasts for.

    The host stays two batches ahead of the GPU, as in training; `launch_ms` is what a batch costs it and
    `waiting_share` the time it waited for scenes. `first_batch_s` holds starting processes and compiling kernels.
    """
    began = time.perf_counter()
    stream = setup.stream(size, batch, 1, sensor)
    waited = 0.0
    wait_for_block = stream._await_block

    def timed_wait(number: int) -> Block:
        nonlocal waited
        began = time.perf_counter()
        block = wait_for_block(number)
        waited += time.perf_counter() - began
        return block

    stream._await_block = timed_wait  # type: ignore[method-assign]
    stream.next()
    torch.cuda.synchronize()
    first, first_wait = time.perf_counter() - began, waited
    for _ in range(2):
        stream.next()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
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
    close(stream)
    return {
        "pairs_per_s": batch * batches / total,
        "seconds": total,
        "workers": stream.workers,
        "launch_ms": (launching - waited) * 1e3 / batches,
        "waiting_share": waited / total,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "first_batch_s": first,
        "first_scenes_s": first_wait,
    }


def stages(setup: Setup, size: tuple[int, int], count: int = 16) -> dict[str, float]:
    """Milliseconds of GPU time per pair of each stage, and of one core for drawing as the workers do."""
    config = PRESETS["mixed"]
    photos = photo_pyramid(setup.bank, setup.device)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    draw_scenes(config, 9, range(8), size, photos.amount)
    start = time.perf_counter()
    host = draw_scenes(config, 9, range(DRAW_AT_ONCE), size, photos.amount)
    drawing = (time.perf_counter() - start) * 1e3 / DRAW_AT_ONCE
    torch.set_num_threads(threads)
    scene = convert(host, lambda tensor: tensor[:count].to(setup.device))
    offsets = rendering.sample_offsets(config.samples, setup.device)
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


def parity(setup: Setup) -> dict[str, float]:
    """Same tables through both backends: share of rays that hit the same thing, and how far colours differ."""
    config = replace(PRESETS["mixed"], layouts={"room": 1.0, "tabletop": 1.0, "street": 1.0, "forest": 1.0})
    size, device = (48, 80), setup.device
    photos = photo_pyramid(setup.bank, device)  # as everywhere else: no bank would be another kernel
    host = draw_scenes(config, 5, range(4), size, photos.amount)
    scene = convert(host, lambda tensor: tensor.to(device))
    views = rendering.two_views(scene, rendering.choose_baseline(scene, config, size))
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


def save_samples(setup: Setup, folder: Path) -> dict[str, float]:
    """A few pairs for eyes elsewhere, in files of at most 10 MiB."""
    stream = setup.stream((384, 576), 8, 11)
    batch = stream.next()
    close(stream)
    np.save(folder / "images.npy", torch.stack((batch.image0, batch.image1), 1).round().byte().cpu().numpy())
    np.save(folder / "disparity.npy", (-batch.field0[..., 0]).half().cpu().numpy())
    np.save(folder / "occluded.npy", batch.occluded0.cpu().numpy())
    return {"pairs": 8}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder for samples and the report")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no part after this (default: 120)")
    parser.add_argument("--sustained", type=float, default=8.0, help="seconds of each sustained measurement")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    arguments.output.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda")
    report: dict[str, Any] = {}

    def note(name: str, made: Callable[[], dict[str, float]]) -> None:
        """One part: its numbers, or why there are none."""
        start = time.perf_counter()
        if start - begin > arguments.seconds:
            report[name] = {"left_out": True}
        else:
            try:
                report[name] = made()
            except Exception:
                report[name] = {"failed": traceback.format_exc(limit=4)}
            report[name]["part_s"] = time.perf_counter() - start
        numbers = {key: round(value, 4) if isinstance(value, float) else value for key, value in report[name].items()}
        print(f"{time.perf_counter() - begin:6.1f} s  {name}: {json.dumps(numbers)}", flush=True)
        write("scenes", device, arguments.output, report)

    pool = shared_pool(default_workers(device))
    bank = photo_bank.load(device=device)
    setup = Setup(device, bank, pool)
    note("start", lambda: {"bank_s": time.perf_counter() - begin, "photos": 0 if bank is None else len(bank)})
    large, small = (512, 768), (320, 640)
    note("sustained_512x768", lambda: sustained(setup, large, arguments.sustained))
    note("sustained_320x640", lambda: sustained(setup, small, arguments.sustained))
    note("ms_per_pair_512x768", lambda: stages(setup, large))
    note("parity", lambda: parity(setup))
    note("samples", lambda: save_samples(setup, arguments.output))
    note("sustained_512x768_clean", lambda: sustained(setup, large, arguments.sustained / 2, "clean"))
    note("ms_per_pair_320x640", lambda: stages(setup, small))
    pool.close()


if __name__ == "__main__":
    main()
