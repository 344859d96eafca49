"""Optional packages, asked for by a sentence instead of a stack trace."""

from __future__ import annotations

import importlib
from typing import Any

from matchattention.errors import InputError


def require(module: str, extra: str, what: str) -> Any:
    """Import a module of an extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{what} needs {module.split('.')[0]} ({error}): pip install 'matchattention[{extra}]'."
        ) from None
