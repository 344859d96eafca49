"""What a measurement has to say about where it was made."""

from __future__ import annotations

import datetime
import platform
from typing import Any

from matchattention.data.provenance import commit, processor, version

_PACKAGES = ("torch", "numpy", "opencv-python-headless", "opencv-python", "pillow")


def describe_environment() -> dict[str, Any]:
    """Date (UTC), commit, versions, processor and threads."""
    import torch

    from matchattention import __version__

    installed = {package: version(package) for package in _PACKAGES}
    versions = {"matchattention": __version__, "python": platform.python_version()}
    versions |= {package: found for package, found in installed.items() if found is not None}
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "versions": versions,
        "processor": processor(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch_threads": torch.get_num_threads(),
    }
