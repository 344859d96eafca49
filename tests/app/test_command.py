"""`matchattention app` before there is a page: every mistake is a sentence and exit code 2."""

from __future__ import annotations

import socket
import sys

import pytest

from matchattention.cli.main import main

pytest.importorskip("nicegui", reason="the page needs the extra 'app'")


def test_a_port_in_use(capsys) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert main(["app", "--port", str(port), "--no-browser"]) == 2
    assert f"Port {port} cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "0"], "0 is no port"),
        (["--port", "70000"], "70000 is no port"),
        (["--port", "8765", "--model", "missing.safetensors"], "neither a shipped model"),
        (["--max-megabytes", "0"], "must be positive"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str, capsys) -> None:
    assert main(["app", "--no-browser", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_without_the_toolkit(monkeypatch, capsys) -> None:
    for name in [name for name in sys.modules if name.startswith("matchattention.app")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nicegui", None)
    assert main(["app", "--no-browser"]) == 2
    assert "pip install 'matchattention[app]'" in capsys.readouterr().err
