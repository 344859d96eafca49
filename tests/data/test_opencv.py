"""OpenCV 4 and 5 are both taken, though they are silenced by different names; and its absence is a sentence."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from matchattention.data.opencv import opencv
from matchattention.errors import InputError


@pytest.mark.parametrize("generation", [4, 5])
def test_either_generation_is_silenced(generation, monkeypatch):
    levels = []
    cv2 = ModuleType("cv2")
    cv2.utils = SimpleNamespace()
    where = cv2 if generation == 4 else SimpleNamespace()
    where.setLogLevel = levels.append
    if generation == 5:
        cv2.utils.logging = where
    monkeypatch.setitem(sys.modules, "cv2", cv2)
    assert opencv("Reading") is cv2
    assert levels == [0]


def test_without_it_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(InputError, match=r"Rectifying needs OpenCV: pip install 'matchattention\[opencv\]'"):
        opencv("Rectifying")
