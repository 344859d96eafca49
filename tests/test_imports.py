"""Imports go downwards only, and the folders a bare GPU machine trains with need torch, numpy and safetensors alone."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# From the ground up: a folder imports itself and the floors below it. docs/design.md says what lives where.
FLOORS = (
    "errors threads",
    "data examples ops",
    "layers",
    "models",
    "geometry viz runtime synth/__init__ synth/dice",
    "synth/rays",
    "synth/world synth/sensor",
    "synth/photos",
    "synth/stream",
    "training inference",
    "exporting",
    "bench evaluation serve archive",
    "app ablation",
    "cli",
    "__init__ __main__",
)
FLOOR = {folder: number for number, floor in enumerate(FLOORS) for folder in floor.split()}
BARE = ("ops", "layers", "models", "synth", "training", "bench", "ablation")
ALWAYS_THERE = {"torch", "numpy", "safetensors", "triton", "matchattention"}  # torch brings Triton where it exists


def imported(tree: ast.AST, into_functions: bool) -> Iterator[str]:
    """Dotted names a file imports; without ``into_functions`` only those that importing the file itself asks for."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif into_functions or not (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        ):
            yield from imported(node, into_functions)


def folder(dotted: list[str]) -> str:
    """The folder of a module's name without the package; rooms of synth count as folders."""
    return "/".join(dotted[:2]) if dotted[0] == "synth" else dotted[0]


def upward(path: str, text: str) -> list[str]:
    """Imports of a file of the package (``path`` below it) that do not point to a lower floor."""
    own = folder(path.removesuffix(".py").split("/"))
    names = [name.split(".")[1:] for name in imported(ast.parse(text), True) if name.startswith("matchattention.")]
    others = {folder(name) for name in names if name[0] != "__version__"} - {own}
    return [f"{path} imports {other}" for other in sorted(others) if FLOOR[other] >= FLOOR[own]]


def test_imports_point_downwards():
    files = [file for file in (ROOT / "matchattention").rglob("*.py") if file.stat().st_size]
    paths = {file.relative_to(ROOT / "matchattention").as_posix(): file.read_text() for file in files}
    unknown = {folder(path.removesuffix(".py").split("/")) for path in paths} - FLOOR.keys()
    assert not unknown, f"say in FLOORS on which floor {sorted(unknown)} live"
    assert [line for path, text in paths.items() for line in upward(path, text)] == []


def test_an_upward_import_is_noticed():
    assert upward("ops/a.py", "def f():\n    from matchattention.layers import block\n") == ["ops/a.py imports layers"]
    assert upward("synth/rays/x.py", "import matchattention.synth.world.x") == ["synth/rays/x.py imports synth/world"]
    assert (
        upward("layers/a.py", "from matchattention.ops import attention\nfrom matchattention import __version__") == []
    )


def foreign(files: list[Path], there: set[str]) -> set[str]:
    """What files import when they are imported, and the project's files behind them, beyond the packages `there`."""
    waiting, seen, found = list(files), set(files), set()
    while waiting:
        file = waiting.pop()
        for name in imported(ast.parse(file.read_text()), False):
            top, *others = name.split(".")
            if top not in ALWAYS_THERE | there and top not in sys.stdlib_module_names:
                found.add(f"{file.relative_to(ROOT)} imports {top}")
            if top in ("matchattention", "tests"):
                whole, parent = ROOT.joinpath(top, *others), ROOT.joinpath(top, *others[:-1])
                behind = {whole.with_suffix(".py"), parent.with_suffix(".py"), parent / "__init__.py"}
                new = {path for path in behind if path.is_file()} - seen
                seen |= new
                waiting += new
    return found


@pytest.mark.parametrize("room", BARE)
def test_a_bare_machine_can_import(room):
    assert foreign(list((ROOT / "matchattention" / room).rglob("*.py")), set()) == set()


def test_a_bare_machine_with_pytest_can_import_the_tests_for_a_gpu():
    """One that cannot be imported keeps all others from running."""
    marked = re.compile(r"^(@|pytestmark = \[)pytest\.mark\.gpu", re.M)
    files = [file for file in (ROOT / "tests").rglob("test_*.py") if marked.search(file.read_text())]
    assert len(files) >= 5
    assert foreign(files, {"pytest", "tests"}) == set()
    assert foreign([ROOT / "tests" / "ops" / "test_triton.py"], {"pytest", "tests"}) != set()
