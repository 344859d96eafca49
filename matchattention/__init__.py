"""Dense correspondence with MatchAttention: stereo depth and optical flow."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from matchattention.threads import wait_briefly

wait_briefly()

__version__ = "0.2.0"

if TYPE_CHECKING:
    from matchattention.errors import InputError, InputWarning
    from matchattention.exporting.write import export
    from matchattention.geometry.camera import StereoCamera
    from matchattention.inference.predictor import Predictor
    from matchattention.models.checkpoint import load
    from matchattention.models.config import NetworkConfig
    from matchattention.models.registry import create_model, list_models
    from matchattention.ops.match_attention.function import match_attention

# Where each public name lives. Imported on first use, so that `import matchattention` costs nothing.
_HOME = {
    "InputError": "matchattention.errors",
    "InputWarning": "matchattention.errors",
    "NetworkConfig": "matchattention.models.config",
    "Predictor": "matchattention.inference.predictor",
    "StereoCamera": "matchattention.geometry.camera",
    "create_model": "matchattention.models.registry",
    "export": "matchattention.exporting.write",
    "list_models": "matchattention.models.registry",
    "load": "matchattention.models.checkpoint",
    "match_attention": "matchattention.ops.match_attention.function",
}

__all__ = [
    "InputError",
    "InputWarning",
    "NetworkConfig",
    "Predictor",
    "StereoCamera",
    "create_model",
    "export",
    "list_models",
    "load",
    "match_attention",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'matchattention' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
