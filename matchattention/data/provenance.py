"""Where a result was made: the commit of the source, versions of packages, the processor."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path


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
