"""Load test of `matchattention serve`: many clients, every answer compared, memory watched.

    python benchmarks/serve_load.py --requests 800 --clients 16 --json benchmarks/results/serve-load.json
    python benchmarks/serve_load.py --model rt --size 512x1024 --requests 200

Without --model the network is a stand-in that reads the disparity off the images (blue / 4) after a fixed delay: then
every answer can be compared to the number, and what is measured is the server. With --model a real network is
served, and every answer is compared to the same pair's answer from a quiet server.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from matchattention.cli.sizes import parse_size
from matchattention.data.atomic import replacing
from matchattention.data.provenance import describe_environment
from matchattention.inference.prediction import Prediction
from matchattention.serve.settings import Settings

SIZES = ((96, 128), (128, 192), (160, 256))
PAIRS_A_SIZE = 4


def stand_in(delay_s: float) -> Any:
    """A network that knows the answer."""

    def match(pairs: Sequence[tuple[NDArray[np.uint8], NDArray[np.uint8]]]) -> list[Prediction]:
        time.sleep(delay_s)
        results = []
        for left, right in pairs:
            fields = []
            for sign, view in ((-1, left), (1, right)):
                disparity = view[..., 2].astype(np.float32) / 4
                fields.append(np.stack([sign * disparity, 0 * disparity], -1))
            nothing = np.zeros(left.shape[:2], np.float32)
            results.append(Prediction("stereo", fields[0], fields[1], nothing > 0, nothing + 1))
        return results

    return match


def resident_mb() -> float:
    """Of this process, in which server and clients live."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    return float("nan")


def client(
    address: str,
    requests: int,
    seed: int,
    pairs: list,
    expected: list,
    tolerance: float,
    counts: Counter,
    seconds: list,
) -> None:
    """One client: binary tensors by Triton's own library, every answer compared, 503 counted and tried again later."""
    import tritonclient.http as triton

    dice = np.random.default_rng(seed)
    connection = triton.InferenceServerClient(address, network_timeout=120, connection_timeout=120)
    for _ in range(requests):
        index = int(dice.integers(len(pairs)))
        inputs = []
        for name, view in zip(("left", "right"), pairs[index]):
            values = np.ascontiguousarray(view.transpose(2, 0, 1)[None])
            inputs.append(triton.InferInput(name, values.shape, "UINT8"))
            inputs[-1].set_data_from_numpy(values)
        started = time.perf_counter()
        try:
            result = connection.infer("load", inputs, outputs=[triton.InferRequestedOutput("disparity")])
        except triton.InferenceServerException as error:
            counts["503" if "busy: try again" in str(error) else f"error: {error}"[:100]] += 1
            time.sleep(0.02)
            continue
        seconds.append(time.perf_counter() - started)
        worst = float(np.abs(result.as_numpy("disparity")[0] - expected[index]).max())
        counts["right" if worst <= tolerance else "WRONG"] += 1
    connection.close()


def serve_in_thread(match: Any, settings: Settings) -> tuple[Any, threading.Thread, str]:
    """A running server, its thread and its address."""
    import uvicorn

    from matchattention.serve.application import make_application
    from matchattention.serve.server import listen

    listener = listen("127.0.0.1", 0)
    app = make_application(match, "load", "stereo", settings)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    return server, thread, f"127.0.0.1:{listener.getsockname()[1]}"


def load_test(match: Any, arguments: argparse.Namespace, sizes: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Figures of one load test."""
    dice = np.random.default_rng(0)
    pairs = [tuple(dice.integers(0, 256, (2, *size, 3), dtype=np.uint8)) for size in sizes for _ in range(PAIRS_A_SIZE)]
    expected = [match([pair])[0].disparity for pair in pairs]
    settings = Settings(queue=arguments.queue, largest_batch=arguments.largest_batch, timeout_s=120)
    server, thread, address = serve_in_thread(match, settings)
    counts: Counter[str] = Counter()
    seconds: list[float] = []
    tolerance = 0.0 if arguments.model is None else 0.5
    each = arguments.requests // arguments.clients
    memory = []
    started = time.perf_counter()
    for part in range(arguments.parts):
        share = each // arguments.parts
        clients = [
            threading.Thread(
                target=client,
                args=(address, share, 1000 * part + number, pairs, expected, tolerance, counts, seconds),
            )
            for number in range(arguments.clients)
        ]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        memory.append(round(resident_mb(), 1))
    wall = time.perf_counter() - started
    import urllib.request

    metrics = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
    server.should_exit = True
    thread.join(60)
    value = {line.split(" ")[0]: float(line.split(" ")[1]) for line in metrics.splitlines() if line[0] != "#"}
    batches = value["matchattention_batch_pairs_count"]
    return {
        "answers": dict(counts),
        "seconds": round(wall, 2),
        "right_per_second": round(counts["right"] / wall, 1),
        "latency_ms": {str(share): round(1000 * float(np.percentile(seconds, share)), 1) for share in (50, 95, 99)},
        "pairs_a_batch": round(value["matchattention_batch_pairs_sum"] / batches, 2),
        "resident_mb_after_each_part": memory,
        "ended": not thread.is_alive(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=800)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--queue", type=int, default=12, help="less than --clients, so that some see 503")
    parser.add_argument("--largest-batch", type=int, default=4)
    parser.add_argument("--parts", type=int, default=5, help="memory is read after each")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="of the stand-in network")
    parser.add_argument("--model", help="serve this network in place of the stand-in")
    parser.add_argument("--size", help="HEIGHTxWIDTH (default: three small sizes in turn)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sizes = SIZES
    if arguments.size:
        sizes = (parse_size(arguments.size),)
    if arguments.model is None:
        match = stand_in(arguments.delay_ms / 1000)
    else:
        from matchattention.inference.predictor import Predictor

        predictor = Predictor(arguments.model, check=False)

        def match(pairs: Any) -> Any:
            return predictor.match_together(pairs)

    figures = load_test(match, arguments, sizes)
    settings = {key: value for key, value in vars(arguments).items() if key != "json"}
    result = {"environment": describe_environment(), "settings": settings, "sizes": sizes, **figures}
    print(json.dumps(result, indent=2))
    if arguments.json:
        with replacing(arguments.json) as temporary:
            temporary.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if set(figures["answers"]) <= {"right", "503"} else 1


if __name__ == "__main__":
    sys.exit(main())
