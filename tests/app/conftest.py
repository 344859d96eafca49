"""The page as people get it: the command in a process of its own, opened in a real Chromium."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import matchattention as ma
from matchattention.models.checkpoint import save
from matchattention.models.config import NetworkConfig
from tests.inference.oracle import TINY

# The cloud needs WebGL, which without a GPU is SwiftShader.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip
MEGABYTES = 0.5


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Iterator[str]:
    """A running `matchattention app` with a tiny random network; ends by Ctrl-C and must then leave nothing."""
    yield from running_page(tmp_path_factory.mktemp("app"), TINY)


@pytest.fixture(scope="module")
def flow_address(tmp_path_factory) -> Iterator[str]:
    """The same with a network for optical flow."""
    config = replace(TINY, task="flow", windows=((4, 4),) * 4)
    yield from running_page(tmp_path_factory.mktemp("flow-app"), config)


def running_page(folder: Path, config: NetworkConfig) -> Iterator[str]:
    """Serve a random network from a process of its own until the caller is through."""
    pytest.importorskip("nicegui", reason="the page needs the extra 'app'")
    torch.manual_seed(0)
    save(ma.create_model(config), folder / "tiny.safetensors", config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    # NiceGUI behaves differently in a process that pytest's variable says is a test.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    environment |= {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "matchattention", "app", "--port", str(port), "--no-browser", "--device", "cpu",
             "--model", str(folder / "tiny.safetensors"), "--max-megabytes", str(MEGABYTES)],
            stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder,
            # A suite that runs as a shell's background job ignores Ctrl-C, and so would what it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        try:
            _wait_until_it_answers(process, port, log)
            yield f"http://127.0.0.1:{port}"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert "Traceback" not in log.read_text(), log.read_text()
    assert [path.name for path in folder.glob("matchattention-app-*")] == []


def _wait_until_it_answers(process: subprocess.Popen, port: int, log: Path) -> None:
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).close()
            return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the page never came up: " + log.read_text())


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (extra 'dev')")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield running
        running.close()
