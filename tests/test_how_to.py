"""The how-to pages: their diffs apply to the package as it is, and their Python runs on the result."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))


def fenced(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def apply(diff: str, root: Path) -> None:
    """Apply a diff whose hunks name no lines: what stood there must be in the file, once."""
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        head, *hunks = re.split(r"^@@\n", part, flags=re.MULTILINE)
        path = root / head.splitlines()[1].removeprefix("+++ b/")
        text = "" if head.startswith("/dev/null") else path.read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines(keepends=True)
            before = "".join(line[1:] for line in lines if line[0] in " -")
            after = "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(before) == 1 or not text, f"{path.name} holds {text.count(before)} times:\n{before}"
            text = text.replace(before, after) if text else after
        path.unlink(missing_ok=True)  # a link to the package's own file
        path.write_text(text, encoding="utf-8")


def linked_package(folder: Path) -> None:
    """The package in another folder, file by file a link, so that a page may replace some."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "matchattention", folder / "matchattention", copy_function=os.symlink, ignore=ignored)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_diff_applies_and_its_check_passes(page: Path, tmp_path: Path) -> None:
    linked_package(tmp_path)
    diffs, program = fenced(page, "diff"), "\n".join(fenced(page, "python"))
    assert diffs
    assert program
    for diff in diffs:
        apply(diff, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_adds_is_formatted(page: Path, tmp_path: Path) -> None:
    linked_package(tmp_path)
    for diff in fenced(page, "diff"):
        apply(diff, tmp_path)
    changed = [str(file) for file in (tmp_path / "matchattention").rglob("*.py") if not file.is_symlink()]
    for command in (["check"], ["format", "--check"]):
        found = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", str(ROOT / "pyproject.toml"), *changed],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert found.returncode == 0, found.stdout


def test_a_diff_that_no_longer_fits_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("a\nb\n")
    with pytest.raises(AssertionError, match="holds 0 times"):
        apply("--- a/file.py\n+++ b/file.py\n@@\n c\n+d\n", tmp_path)
