"""From rates measured on one GPU to what many would take: training in days, archives in GPU days and bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchattention.errors import InputError
from matchattention.training.plan import BYTES_A_PIXEL


@dataclass(frozen=True)
class TrainingScale:
    """One row of a training's plan.

    Attributes:
        gpus: How many.
        batch: Pairs a step, over all.
        days: Of the whole training.
        gpu_days: Their product.
        input_bytes: A second, over all GPUs: what storage must deliver.
        exchange_bytes: A second and GPU, for averaging gradients.
    """

    gpus: int
    batch: int
    days: float
    gpu_days: float
    input_bytes: float
    exchange_bytes: float


def training_scale(
    parameters: int,
    pairs_per_second: float,
    per_gpu: int,
    pairs: float,
    crop: tuple[int, int],
    gpus: int,
    efficiency: float,
) -> TrainingScale:
    """What a training of so many pairs takes on so many GPUs.

    Args:
        parameters: Of the network.
        pairs_per_second: Of one GPU alone.
        per_gpu: Its batch at that rate.
        pairs: To be seen altogether.
        crop: (H, W) px.
        gpus: How many.
        efficiency: What of the rate remains with several: 1 for one GPU, a guess or a measurement for more.
    """
    rate = pairs_per_second * gpus * (efficiency if gpus > 1 else 1.0)
    days = pairs / rate / 86400
    # A ring all-reduce sends and receives twice the gradient, in fp32, less one part of it.
    exchange = 2 * (gpus - 1) / gpus * 4 * parameters * rate / (per_gpu * gpus)
    pixels = crop[0] * crop[1]
    return TrainingScale(gpus, per_gpu * gpus, days, days * gpus, rate * pixels * BYTES_A_PIXEL, exchange)


def measured_case(path: Path, network: str, crop: tuple[int, int], recompute: bool) -> dict[str, Any]:
    """A case of ``training-limits-DEVICE.json``, see benchmarks/training_limits.py.

    Raises:
        InputError: The file holds no such case.
    """
    try:
        cases = json.loads(path.read_text())["cases"]
        wanted = (network, list(crop), recompute)
        found = [
            one for one in cases if (one["network"], one["crop"], one["recompute"]) == wanted and one.get("fastest")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no result of benchmarks/training_limits.py ({type(error).__name__})") from None
    if not found:
        raise InputError(
            f"{path} holds no {network} at {crop[0]}x{crop[1]} with these settings: give --pairs-per-second"
        )
    return found[0]


def training_table(rows: list[TrainingScale]) -> str:
    """Rows as Markdown."""
    lines = [
        "| GPUs | batch | hours | GPU days | input, all | gradients, each GPU |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.gpus} | {row.batch} | {row.days * 24:.2f} | {row.gpu_days:.2f} | "
            f"{row.input_bytes / 1e9:.2f} GB/s | {row.exchange_bytes / 1e9:.2f} GB/s |"
        )
    return "\n".join(lines)


def archive_table(
    counts: list[float], pairs_per_second: float, read_bytes: float, written_bytes: float, price: float
) -> str:
    """What predicting archives takes, as Markdown.

    Args:
        counts: Pairs of each archive.
        pairs_per_second: Of one GPU, reading and writing included.
        read_bytes: A pair.
        written_bytes: A pair.
        price: Of a GPU hour, in whatever currency.
    """
    lines = ["| pairs | GPU days | read | written | input of one GPU | cost |", "|---|---|---|---|---|---|"]
    for count in counts:
        days = count / pairs_per_second / 86400
        lines.append(
            f"| {count:.0e} | {days:.2f} | {_size(count * read_bytes)} | {_size(count * written_bytes)} | "
            f"{pairs_per_second * read_bytes / 1e6:.0f} MB/s | {days * 24 * price:.0f} |"
        )
    return "\n".join(lines)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} PB"
