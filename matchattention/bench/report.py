"""Results as files: what was measured, when, on what, from which commit."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from matchattention.data.atomic import replacing
from matchattention.data.provenance import commit, processor, version

RESULTS = Path("benchmarks") / "results"


def circumstances(device: torch.device) -> dict[str, Any]:
    """Date, commit, hardware and versions."""
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "device": device.type,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }
    else:
        found |= {"cpu": processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    return found


def path_of(name: str, device: torch.device, folder: Path | None = None) -> Path:
    """Where `write` puts the results of that name."""
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return (RESULTS if folder is None else folder) / f"{name}-{chip.lower().replace(' ', '-').replace('/', '-')}.json"


def write(name: str, device: torch.device, folder: Path | None, results: dict[str, Any]) -> Path:
    """Write `results` with their circumstances to `folder`/NAME-DEVICE.json; the newest replace the last."""
    path = path_of(name, device, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"circumstances": circumstances(device), **results}, indent=1) + "\n")
    return path
