"""What a user gets: `Predictor` from images to arrays, from tensors to tensors, from files, in streams and batches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from matchattention.bench.network import load_or_create, nothing
from matchattention.bench.scenes import image_pair
from matchattention.bench.timing import measure
from matchattention.errors import first_line
from matchattention.inference.images import read_pair
from matchattention.inference.prediction import Prediction
from matchattention.inference.predictor import Predictor
from matchattention.models.network import MatchNetwork

BATCH = 8
FILES = 32
# A process that has never matched anything: with Triton's kernels still to be compiled, and with those of the last one.
_FIRST_CALL = """
import json, sys, time
begin = time.perf_counter()
import numpy as np, torch
from matchattention.bench.network import load_or_create
from matchattention.inference.predictor import Predictor
imported = time.perf_counter()
name, height, width, device, precision = sys.argv[1:6]
left, right = np.random.default_rng(0).integers(0, 256, (2, int(height), int(width), 3), dtype=np.uint8)
predict = Predictor(load_or_create(name)[0], device, precision, check=False)
loaded = time.perf_counter()
predict(left, right).disparity
found = time.perf_counter()
predict(left, right, initial=predict(left, right)).disparity
print(json.dumps({"import_s": imported - begin, "load_s": loaded - imported, "first_call_s": found - loaded,
                  "first_warm_start_s": time.perf_counter() - found}))
"""


def read_all(result: Prediction) -> tuple[NDArray[Any], ...]:
    """Everything that users read of a stereo pair, as arrays; nothing is computed with them."""
    return result.relative_position, result.occlusion, result.confidence


def bench_predictor(
    device: torch.device,
    name: str = "rt",
    shape: tuple[int, int] = (512, 1024),
    precision: str = "auto",
    seconds: float = 1.0,
    first_call: bool = True,
    say: Callable[[str], None] = print,
    keep: Callable[[dict[str, Any]], object] = nothing,
) -> dict[str, Any]:
    """Time every way in and out of a predictor without pair check; failures are recorded.

    Args:
        device: where.
        name: of a registered network.
        shape: (H, W) px.
        precision: "auto", "fp32", "fp16" or "bf16".
        seconds: measuring time of each way.
        first_call: whether to start processes that match their first pair, with empty caches and with full ones.
        say: takes lines of progress.
        keep: takes the results so far after each way.
    """
    model, trained = load_or_create(name)
    results: dict[str, Any] = {"network": name, "trained_weights": trained, "shape": list(shape), "ways": {}}
    say(f"Predictor({name}, check=False), {shape[1]}x{shape[0]}")
    for label, run in _ways(model, device, precision, shape, seconds):
        try:
            row = results["ways"][label] = run()
            say(f"  {label:34s} {row['ms_a_pair']:9.3f} ms a pair, {1e3 / row['ms_a_pair']:8.1f} pairs/s")
        except Exception as error:
            results["ways"][label] = {"failed": first_line(error)}
            say(f"  {label:34s} failed: {first_line(error)}")
        keep(results)
    one, many = (results["ways"].get(label, {}).get("ms_a_pair") for label in ("arrays, cold", f"batch of {BATCH}"))
    if one and many:
        results["batch_gain"] = one / many
        say(f"  a batch of {BATCH} gives {one / many:.2f} times the pairs of one at a time")
    if first_call:
        results["first_call"] = _first_calls(name, shape, device, precision)
        for label, row in results["first_call"].items():
            say(f"  {label}: {json.dumps({key: round(value, 2) for key, value in row.items()})}")
        keep(results)
    return results


def _ways(
    model: MatchNetwork, device: torch.device, precision: str, shape: tuple[int, int], seconds: float
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    predict = Predictor(model, device, precision, check=False)
    views = [view[0] for view in image_pair(*shape, device)[:2]]
    # Channels innermost, as cameras and decoders give them: from another order they are copied first, for milliseconds.
    left, right = (view.permute(1, 2, 0).contiguous().cpu().numpy() for view in views)
    first = predict(left, right)

    def timed(function: Callable[[], Any], pairs: int = 1) -> dict[str, Any]:
        def waited() -> None:
            function()
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        for _ in range(4):  # until a size that comes again is captured
            waited()
        found = measure(waited, torch.device("cpu"), seconds)  # by the clock: what a user waits for
        return {**found.to_dict(), "ms_a_pair": found.median_ms / pairs, "mode": predict.runtime.ran}

    uploaded = predict.upload([(left, right)])
    yield "network and confidence alone", lambda: timed(lambda: predict.runtime.run(*uploaded))
    yield "arrays, cold", lambda: timed(lambda: read_all(predict(left, right)))
    yield "arrays, warm start", lambda: timed(lambda: read_all(predict(left, right, initial=first)))
    yield "arrays, disparity alone", lambda: timed(lambda: predict(left, right).disparity)
    yield "tensors, cold", lambda: timed(lambda: predict(*views).tensors)
    start = predict(*views)
    yield "tensors, warm start", lambda: timed(lambda: predict(*views, initial=start).tensors)
    together = [(left, right)] * BATCH
    yield f"batch of {BATCH}", lambda: timed(lambda: [read_all(r) for r in predict.match_together(together)], BATCH)

    def stream() -> dict[str, Any]:
        begin, count = time.perf_counter(), 0
        for result in predict.stream((left, right) for _ in range(10**6)):
            read_all(result)
            count += 1
            if time.perf_counter() - begin > seconds and count >= 3:
                break
        return {"ms_a_pair": 1e3 * (time.perf_counter() - begin) / count, "runs": count}

    yield "stream, one pair read ahead", stream
    yield f"files, {_threads()} threads decode", lambda: _files(predict, left, right)


def _threads() -> int:
    return min(8, os.cpu_count() or 1)


def _files(predict: Predictor, left: NDArray[np.uint8], right: NDArray[np.uint8]) -> dict[str, Any]:
    """PNG files, decoded by threads ahead of the passes; beside it what the threads give by themselves."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_threads()) as threads:
        paths = []
        for index in range(FILES):
            pair = Path(folder) / f"{index}-left.png", Path(folder) / f"{index}-right.png"
            for path, view in zip(pair, (left, right)):
                Image.fromarray(np.roll(view, index, 0)).save(path)
            paths.append(pair)
        begin = time.perf_counter()
        list(threads.map(lambda pair: read_pair(*pair), paths))
        decoding = time.perf_counter() - begin
        begin = time.perf_counter()
        ahead = deque(threads.submit(read_pair, *pair) for pair in paths)
        while ahead:
            read_all(predict.match(*ahead.popleft().result()))
        total = time.perf_counter() - begin
    return {"ms_a_pair": 1e3 * total / FILES, "decoding_alone_ms_a_pair": 1e3 * decoding / FILES, "runs": FILES}


def _first_calls(name: str, shape: tuple[int, int], device: torch.device, precision: str) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    arguments = [name, *map(str, shape), str(device), precision]
    with tempfile.TemporaryDirectory() as folder:
        for label in ("first call, empty cache", "first call, full cache"):
            done = subprocess.run(
                [sys.executable, "-c", _FIRST_CALL, *arguments],
                capture_output=True,
                text=True,
                env={**os.environ, "TRITON_CACHE_DIR": folder},
            )
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            rows[label] = json.loads(done.stdout.splitlines()[-1])
    return rows
