"""Threads wait briefly, then sleep, unless somebody chose otherwise."""

import os
import subprocess
import sys

import pytest

from matchattention import threads


def asked(code: str, **extra: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in threads.SETTINGS} | extra
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("code", "extra", "expected"),
    [
        ("import matchattention", {}, "PASSIVE 1000"),
        ("import matchattention", {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None"),
        ("import matchattention", {"GOMP_SPINCOUNT": "7"}, "None 7"),
        ("import sys; sys.modules['torch'] = sys; import matchattention", {}, "None None"),
    ],
    ids=["first", "chosen", "chosen-otherwise", "too-late"],
)
def test_before_torch_loads(code: str, extra: dict[str, str], expected: str) -> None:
    tell = "import os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('GOMP_SPINCOUNT'))"
    assert asked(f"{code}; {tell}", **extra) == expected


def test_in_words(monkeypatch) -> None:
    for name in threads.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    assert "spin" in threads.in_words()
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert "GOMP_SPINCOUNT=7" in threads.in_words()
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert "sleep" in threads.in_words()
