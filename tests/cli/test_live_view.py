"""The window, with a stand-in for the toolkit, because a test machine has no display."""

import sys
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

from matchattention.cli import live_view


def test_why_no_window(monkeypatch) -> None:
    monkeypatch.setattr(live_view.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert live_view.why_no_window() == "there is no display"
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setitem(sys.modules, "tkinter", None)
    assert live_view.why_no_window() == "Python's tkinter is not installed"


@pytest.mark.parametrize("way", ["close", "key"])
def test_the_window_shows_frames_until_it_is_closed(monkeypatch, way: str) -> None:
    from PIL import ImageTk

    root = MagicMock()
    monkeypatch.setitem(sys.modules, "tkinter", SimpleNamespace(Tk=lambda: root, Label=MagicMock()))
    shown = []
    monkeypatch.setattr(ImageTk, "PhotoImage", lambda image: shown.append(image.size))
    view = live_view.LiveView("test")
    view.show(np.zeros((4, 6, 3), np.uint8))
    assert shown == [(6, 4)]
    assert view.open
    if way == "close":
        (_, stop), _ = root.protocol.call_args
        stop()
    else:
        (_, stop), _ = root.bind.call_args
        stop(None)
    assert not view.open
    view.show(np.zeros((4, 6, 3), np.uint8))
    assert len(shown) == 1
    view.close()
    root.destroy.assert_called_once()
