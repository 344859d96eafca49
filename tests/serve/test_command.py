"""`matchattention serve` as people start it: a process with a tiny network, ended by SIGTERM; and every mistake."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.cli.main import main
from matchattention.inference.predictor import Predictor
from matchattention.models.checkpoint import save
from matchattention.serve.server import listen, serve
from matchattention.serve.settings import Settings
from tests.inference.oracle import TINY
from tests.serve.conftest import pair
from tests.serve.test_depth import file_of


def test_a_real_network_answers_and_ends_well(tmp_path) -> None:
    torch.manual_seed(0)
    file = tmp_path / "tiny.safetensors"
    save(ma.create_model(TINY), file, TINY)
    process = subprocess.Popen(
        [sys.executable, "-m", "matchattention", "serve", "--port", "0", "--device", "cpu", "--model", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[\d.:]+(?=/v2/models/tiny)", line)
        assert found, line
        left, right = pair(0, 40, 72)
        reply = httpx.post(
            f"{found[0]}/depth", files={"left": file_of(left), "right": file_of(right)},
            data={"check": "false", "format": "npy"}, timeout=60,
        )  # fmt: skip
        assert reply.status_code == 200, reply.text
        import io

        expected = Predictor(str(file), "cpu", check=False)(left, right).disparity
        np.testing.assert_allclose(np.load(io.BytesIO(reply.content)), expected, atol=1e-4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
        assert "Traceback" not in process.stdout.read()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_who_reads_the_address_can_connect(monkeypatch, capsys) -> None:
    connected = []

    def run(self, sockets) -> None:
        assert "Serving rt at http://127.0.0.1:" in capsys.readouterr().out
        socket.create_connection(sockets[0].getsockname(), timeout=10).close()
        connected.append(True)

    monkeypatch.setattr("uvicorn.Server.run", run)
    with listen("127.0.0.1", 0) as listener:
        serve(SimpleNamespace(task="stereo", match_together=None), "rt", listener, Settings())
    assert connected


def test_other_logging_of_the_process_goes_on(monkeypatch, caplog) -> None:
    handler = logging.StreamHandler()
    closed = []
    monkeypatch.setattr(handler, "close", lambda: closed.append(True))
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    with listen("127.0.0.1", 0) as listener:
        serve(SimpleNamespace(task="stereo", match_together=None), "rt", listener, Settings())
    assert not closed
    logging.getLogger("uvicorn.error").error("a request that failed")
    assert "a request that failed" in caplog.text


def test_together_is_the_same_as_alone() -> None:
    torch.manual_seed(0)
    predictor = Predictor(ma.create_model(TINY), "cpu", check=False)
    pairs = [pair(seed, 48, 64) for seed in range(3)]
    for together, views in zip(predictor.match_together(pairs), pairs):
        alone = predictor.match(*views)
        for name in ("relative_position", "relative_position_right", "confidence"):
            np.testing.assert_allclose(getattr(together, name), getattr(alone, name), atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "MATCHATTENTION_TOKEN"),
        (["--token-file", "missing"], "cannot be read"),
        (["--port", "70000"], "no port"),
        (["--queue", "0"], "--queue must be positive"),
        (["--timeout-s", "-1"], "--timeout-s must be positive"),
        (["--name", "a/b"], "cannot stand in an address"),
        (["--port", "0", "--model", "missing.safetensors"], "neither a shipped model"),
    ],
)
def test_wrong_arguments(arguments: list[str], words: str, capsys, monkeypatch) -> None:
    monkeypatch.delenv("MATCHATTENTION_TOKEN", raising=False)
    assert main(["serve", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_port_in_use(capsys) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    assert f"port {port} cannot be used" in capsys.readouterr().err


def test_without_the_server_packages(monkeypatch, capsys) -> None:
    for name in [name for name in sys.modules if name.startswith("matchattention.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve"]) == 2
    assert "pip install 'matchattention[serve]'" in capsys.readouterr().err
