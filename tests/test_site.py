"""The documentation builds without a warning, and its pages ask no other host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("material", reason="mkdocs-material is not installed (extra 'docs')")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages <= {folder.name for folder in site.iterdir()}
    assert (site / "index.html").is_file()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//|<link\b(?![^>]*canonical)[^>]*\bhref="(?:https?:)?//"""
    )
    for page in site.rglob("*.html"):
        assert loading.findall(page.read_text(encoding="utf-8")) == [], page
