"""What the documentation says about the code, taken from the code: the tree of files and the commands' help.

    python scripts/reference_pages.py        # write the tree into docs/design.md

`mkdocs build` calls `on_page_markdown`, so that the site is right even where the page in the repository is not.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
DESIGN = ROOT / "docs" / "design.md"
TREE = re.compile(r"(<!-- tree: .*? -->\n).*?(<!-- end of tree -->)", re.DOTALL)
COMMANDS = "<!-- commands: filled in when the site is built -->"
WIDTH = 78  # columns of the help texts


def summary(file: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    line = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", line)[0]


def tree(package: Path) -> str:
    """Every folder and Python file below a package, one line each."""
    lines = []

    def visit(folder: Path, depth: int) -> None:
        indent = "    " * depth
        own = folder / "__init__.py"
        lines.append(f"{indent}{folder.name}/  {summary(own) if own.is_file() else ''}".rstrip())
        inside = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
        for path in inside:
            if path.is_dir() and any(path.rglob("*.py")):
                visit(path, depth + 1)
            elif path.suffix == ".py" and path.name != "__init__.py":
                lines.append(f"{indent}    {path.name}  {summary(path)}".rstrip())

    visit(package, 0)
    return "\n".join(lines)


def with_tree(page: str) -> str:
    """The page with the tree between its markers as it is now."""
    block = f"```text\n{tree(ROOT / 'matchattention')}\n```\n"
    return TREE.sub(lambda found: found[1] + block + found[2], page)


def help_of(command: str) -> str:
    """What `matchattention COMMAND --help` prints."""
    from matchattention.cli.main import main

    printed = io.StringIO()
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    with mock.patch.dict(os.environ, plain), contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([command, "--help"])
    return printed.getvalue().rstrip()


def command_pages() -> str:
    """One section a command: its help."""
    from matchattention.cli.main import COMMANDS as commands

    sections = [f"## {name}\n\n{line[0].upper()}{line[1:]}." for name, line in commands.items()]
    helps = [f"```text\n{help_of(name)}\n```\n" for name in commands]
    return "\n".join(f"{section}\n\n{text}" for section, text in zip(sections, helps))


def on_page_markdown(markdown: str, **_: object) -> str:
    """mkdocs asks for every page."""
    if COMMANDS in markdown:
        return markdown.replace(COMMANDS, command_pages())
    return with_tree(markdown) if TREE.search(markdown) else markdown


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    DESIGN.write_text(with_tree(DESIGN.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote the tree of {ROOT / 'matchattention'} into {DESIGN}")
