"""Where a result was made: date, commit of the source, versions of packages, hardware."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "triton", "numpy", "opencv-python-headless", "opencv-python", "pillow")


def describe_environment(device: str = "cpu") -> dict[str, Any]:
    """What every file of results says: date (UTC), commit, versions, processor, and the GPU where it ran on one."""
    import torch

    from matchattention import __version__

    installed = {package: version(package) for package in _PACKAGES}
    versions = {"matchattention": __version__, "python": platform.python_version()}
    versions |= {package: found for package, found in installed.items() if found is not None}
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "versions": versions,
        "device": torch.device(device).type,
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
    if found["device"] == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }
    return found


def commit() -> str | None:
    """The checkout's commit, with "+" where tracked files of the package have changed since; None outside a checkout.

    MATCHATTENTION_COMMIT overrules it, for copies of a working tree whose history did not come along.
    """
    if given := os.environ.get("MATCHATTENTION_COMMIT"):
        return given
    package = Path(__file__).resolve().parents[1]
    try:
        name = _git(package, "rev-parse", "--short=12", "HEAD")
        return name + ("+" if _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def processor() -> str:
    """The CPU's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def version(package: str) -> str | None:
    """The installed version of a package; None where it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
