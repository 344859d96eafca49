"""OpenCV, an optional extra, where it is installed; it keeps its own lines to itself."""

from __future__ import annotations

from typing import Any

from matchattention.errors import InputError


def opencv(what: str) -> Any:
    """The module cv2.

    Args:
        what: needs it, as in "WHAT needs OpenCV".

    Raises:
        InputError: it is not installed.
    """
    try:
        import cv2
    except ImportError:
        raise InputError(f"{what} needs OpenCV: pip install 'matchattention[opencv]'.") from None
    # What is wrong with a file or a camera is said in one sentence, not in OpenCV's lines too.
    log = cv2 if hasattr(cv2, "setLogLevel") else cv2.utils.logging  # of OpenCV 4, and of 5
    log.setLogLevel(0)
    return cv2
