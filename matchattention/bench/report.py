"""Results as files: what was measured, when, on what, from which commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from matchattention.data.atomic import replacing
from matchattention.data.provenance import describe_environment

RESULTS = Path("benchmarks") / "results"


def path_of(name: str, device: torch.device, folder: Path | None = None) -> Path:
    """Where `write` puts the results of that name."""
    chip = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return (RESULTS if folder is None else folder) / f"{name}-{chip.lower().replace(' ', '-').replace('/', '-')}.json"


def write(name: str, device: torch.device, folder: Path | None, results: dict[str, Any]) -> Path:
    """Write `results` with their environment to `folder`/NAME-DEVICE.json; the newest replace the last."""
    path = path_of(name, device, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"environment": describe_environment(str(device)), **results}, indent=1) + "\n")
    return path
