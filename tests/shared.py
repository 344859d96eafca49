"""The material beside the checkout, which some tests compare with."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared(name: str) -> Path:
    """A path under ../shared; the calling test is skipped, and says why, where that folder is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"needs {name} of the folder 'shared' beside the checkout, which is not here")
    return path
