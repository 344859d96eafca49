"""A window that shows frames, with nothing but Python's own toolkit (OpenCV's headless build has none)."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np


def why_no_window() -> str | None:
    """Why frames cannot be shown on this machine, or None when they can."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display"
    try:
        import tkinter  # noqa: F401
    except ImportError:
        return "Python's tkinter is not installed"
    return None


class LiveView:
    """A window; closing it or pressing Escape or q ends the show."""

    def __init__(self, title: str) -> None:
        import tkinter

        self.open = True
        self._root = tkinter.Tk()
        self._root.title(title)
        self._root.protocol("WM_DELETE_WINDOW", self._stop)
        for key in ("<Escape>", "q"):
            self._root.bind(key, lambda event: self._stop())
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._picture: Any = None

    def show(self, picture: np.ndarray) -> None:
        """Draw (H, W, 3) uint8 RGB and handle the window's events."""
        from PIL import Image, ImageTk

        if not self.open:
            return
        self._picture = ImageTk.PhotoImage(Image.fromarray(picture))  # Tk keeps no reference of its own
        self._label.configure(image=self._picture)
        self._root.update()

    def close(self) -> None:
        """Take the window away."""
        self._root.destroy()

    def _stop(self) -> None:
        self.open = False
