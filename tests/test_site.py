"""The documentation builds without a warning, and its pages ask no other host for anything."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

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


def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        folder = site / name.removesuffix(".md").removesuffix("index")
        assert (folder / "index.html").is_file(), name
        assert f": {name}\n" in navigation, f"{name} is in no menu of mkdocs.yml"


def test_links_lead_to_places_that_exist(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("index.html")}
    places = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in pages.items()}
    lost = []
    for page, text in pages.items():
        for link in re.findall(r'<a\b[^>]*\bhref="([^":]*#[^"]+)"', text):
            path, anchor = link.split("#", 1)
            target = (page.parent / unquote(path)).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if unquote(anchor) not in places.get(target, ()):
                lost.append(f"{page.relative_to(site)}: {link}")
    assert lost == []


def test_references_come_from_the_code(site: Path) -> None:
    from matchattention.cli.main import COMMANDS

    commands = (site / "cli" / "index.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"usage: matchattention {name}" not in commands] == []
    python = (site / "reference" / "index.html").read_text(encoding="utf-8")
    assert "Attend to a small contiguous window" in python


def test_the_tree_names_every_file() -> None:
    """`python scripts/reference_pages.py` writes it."""
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    listed = re.findall(r"^ +(\w+\.py)  \S", page, re.MULTILINE)
    files = [file for file in (ROOT / "matchattention").rglob("*.py") if file.name != "__init__.py"]
    assert sorted(listed) == sorted(file.name for file in files), "run scripts/reference_pages.py"


def variables(tree: ast.Module) -> Iterator[str]:
    """Names of the environment variables that a module reads or sets."""
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("os.environ.get", "os.getenv"):
            asked = node.args[:1]
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            asked = [node.slice]
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
            asked = [node.left]
        for name in asked:
            value = constants.get(name.id) if isinstance(name, ast.Name) else name
            if isinstance(value, ast.Constant):
                yield value.value


def test_every_environment_variable_is_documented() -> None:
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    read = {
        name
        for file in (ROOT / "matchattention").rglob("*.py")
        for name in variables(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert {"MATCHATTENTION_TOKEN", "MATCHATTENTION_PHOTO_BANK", "RANK", "TRITON_INTERPRET"} <= read
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []


def test_steps_of_the_scenes_page_name_modules_that_exist() -> None:
    page = (ROOT / "docs" / "scenes.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\d\. \*\*\w+\*\* \(([^)]*)\)", page, re.MULTILINE)
    assert len(steps) == 6
    known = {path.stem for path in (ROOT / "matchattention" / "synth").rglob("*")}
    assert [name for step in steps for name in re.findall(r"`(\w+)`", step) if name not in known] == []


def test_files_that_pages_name_exist() -> None:
    package = {path.relative_to(ROOT / "matchattention").as_posix() for path in (ROOT / "matchattention").rglob("*.py")}
    lost = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        if page.name != "training-log.md":  # tells of files of its time
            names = re.findall(r"`([\w/.-]+\.py)`", page.read_text(encoding="utf-8"))
            ends = {name: "/" + name.removeprefix("matchattention/") for name in names}
            lost += [
                f"{page.name}: {name}"
                for name, end in ends.items()
                if not (ROOT / name).is_file() and not any(("/" + file).endswith(end) for file in package)
            ]
    assert lost == []


def test_user_pages_name_nothing_that_users_do_not_have() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert "../shared" not in page.read_text(encoding="utf-8"), page


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loading = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="(?:https?:)?//|<link\b(?![^>]*canonical)[^>]*\bhref="(?:https?:)?//"""
    )
    for page in site.rglob("*.html"):
        assert loading.findall(page.read_text(encoding="utf-8")) == [], page
