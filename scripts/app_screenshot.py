"""Takes docs/images/app.png: the page with a bundled pair, in headless Chromium.

python scripts/app_screenshot.py [--model rt] [--example workbench] [--output docs/images/app.png] [--width 1280]
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
]  # fmt: skip
_COLOURS = 128  # of the PNG: a quarter of the bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="rt")
    parser.add_argument("--example", default="workbench")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images" / "app.png")
    parser.add_argument("--width", type=int, default=1280, help="of the window, px; 390 is a phone")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("no Chromium on this machine: apt-get install chromium")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "matchattention", "app", "--port", str(port), "--no-browser"]
    server = subprocess.Popen([*command, "--model", arguments.model], cwd=ROOT, env=os.environ)
    try:
        _wait(server, port)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
            _shoot(browser, f"http://127.0.0.1:{port}", arguments.example, arguments.width, arguments.output)
            browser.close()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
    picture = Image.open(arguments.output).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    picture.save(arguments.output, optimize=True)
    print(f"{arguments.output}: {picture.width}x{picture.height} px, {arguments.output.stat().st_size // 1000} kB")


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    while server.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10).close()
            return
        except OSError:
            time.sleep(0.3)
    sys.exit("the page did not start")


def _shoot(browser: Browser, address: str, name: str, width: int, output: Path) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(address)
    page.get_by_role("button", name=name).click()
    page.locator(".viewer[data-ready=true]").wait_for(timeout=300_000)
    page.wait_for_timeout(3000)  # the cloud's first frames
    box = page.locator(".viewer-stage").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.62 * box["width"], box["y"] + 0.55 * box["height"])
    page.wait_for_timeout(300)
    output.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(output), full_page=True)


if __name__ == "__main__":
    main()
