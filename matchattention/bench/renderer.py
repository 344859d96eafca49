"""The scene renderer: pairs a second with scenes drawn in processes, and milliseconds of each stage. Needs a GPU."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from matchattention.bench.network import nothing
from matchattention.errors import InputError, first_line
from matchattention.synth.photos import photo_bank
from matchattention.synth.photos.moving_photos import MovingPhotoStream
from matchattention.synth.rays import cast_triton, shade_triton
from matchattention.synth.rays.tables import photo_pyramid
from matchattention.synth.stream import render as rendering
from matchattention.synth.stream.blocks import Block
from matchattention.synth.stream.drawing import DrawingPool, default_workers, shared_pool
from matchattention.synth.stream.scene_stream import DRAW_AT_ONCE, SceneStream
from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.scene import convert, draw_scenes

LARGE, SMALL = (512, 768), (320, 640)


def bench_renderer(
    device: torch.device,
    seconds: float = 8.0,
    say: Callable[[str], None] = print,
    keep: Callable[[dict[str, Any]], object] = nothing,
) -> dict[str, Any]:
    """Rates at two sizes, without the sensor at one, and the stages of both; the most important first.

    Args:
        device: a GPU.
        seconds: of each sustained rate.
        say: takes lines of progress.
        keep: takes the results so far after each part.
    """
    if device.type != "cuda":
        raise InputError("The renderer is timed on a GPU: there is none here, or --device says cpu.")
    pool = shared_pool(default_workers(device))
    setup = Setup(device, photo_bank.load(device=device), pool)
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "sustained_320x640_flow": lambda: sustained(setup, SMALL, seconds, preset="flow"),
        "moving_photos_320x640": lambda: rate(MovingPhotoStream(setup.bank, SMALL, 32, 1, device).next, 32, seconds),
        "sustained_320x640": lambda: sustained(setup, SMALL, seconds),
        "sustained_512x768": lambda: sustained(setup, LARGE, seconds),
        "ms_per_pair_512x768": lambda: stages(setup, LARGE),
        "sustained_512x768_clean": lambda: sustained(setup, LARGE, seconds / 2, "clean"),
        "ms_per_pair_320x640": lambda: stages(setup, SMALL),
    }
    results: dict[str, Any] = {}
    for name, run in parts.items():
        try:
            results[name] = run()
        except Exception as error:
            results[name] = {"failed": first_line(error)}
        say(
            f"{name}: "
            + ", ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in results[name].items())
        )
        keep(results)
    pool.close()
    return results


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

    def stream(
        self, size: tuple[int, int], batch: int, seed: int, sensor: str | None = None, preset: str = "mixed"
    ) -> SceneStream:
        config = PRESETS[preset] if sensor is None else replace(PRESETS[preset], sensor=sensor)
        return SceneStream(config, size, batch, seed, self.device, bank=self.bank)


def close(stream: SceneStream) -> None:
    """Ask for no more scenes: the next part shall have the cores for itself."""
    for block in stream._blocks.values():
        block.cancel()
    stream._blocks.clear()


def sustained(
    setup: Setup,
    size: tuple[int, int],
    seconds: float,
    sensor: str | None = None,
    batch: int = 32,
    preset: str = "mixed",
) -> dict[str, float]:
    """Pairs per second of the whole stream over a time that no stock of drawn scenes lasts for.

    `waiting_share` is the time that the host waited for scenes. `first_batch_s` holds starting processes and compiling
    kernels.
    """
    began = time.perf_counter()
    stream = setup.stream(size, batch, 1, sensor, preset)
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
    waited = 0.0
    found = rate(stream.next, batch, seconds)
    close(stream)
    return {
        **found,
        "workers": stream.workers,
        "waiting_share": waited / found["seconds"],
        "first_batch_s": first,
        "first_scenes_s": first_wait,
    }


def rate(make: Callable[[], object], batch: int, seconds: float) -> dict[str, float]:
    """Pairs per second of a stream, the host two batches ahead; `launch_ms` is what a batch costs it."""
    for _ in range(2):
        make()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    launching, batches = 0.0, 0
    ahead: deque[torch.cuda.Event] = deque()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        began = time.perf_counter()
        make()
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
        "launch_ms": launching * 1e3 / batches,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
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

    def timed(name: str, work: Callable[[], Any]) -> Any:
        for _ in range(2):
            value = work()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(5):
            value = work()
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
