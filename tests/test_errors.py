"""Sentences of mistakes are in one style."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from matchattention.errors import InputError

PACKAGE = Path(__file__).resolve().parents[1] / "matchattention"
# First words that are names: arguments, models, formats.
NAMES = [
    "inertia",
    "int8",
    "max_depth",
    "min_confidence",
    "points",
    "q",
    "relative_position",
    "sgbm",
    "similarity",
    "window",
]


def beginnings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and first words of each `InputError` whose text begins with a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("InputError") and node.args:
            text = node.args[0]
            while isinstance(text, ast.BinOp):
                text = text.left
            if isinstance(text, ast.JoinedStr):
                text = text.values[0]
            if isinstance(text, ast.Constant):
                yield node.lineno, str(text.value)


def test_sentences_begin_with_a_capital() -> None:
    small = [
        f"{file.relative_to(PACKAGE)}:{line} {text}"
        for file in PACKAGE.rglob("*.py")
        for line, text in beginnings(ast.parse(file.read_text(encoding="utf-8")))
        if text[0].islower() and text.split()[0].strip(",") not in NAMES
    ]
    assert small == []


@pytest.mark.parametrize("given", ["Give a number", "Give a number."])
def test_sentences_end_with_a_full_stop(given: str) -> None:
    error = InputError(given)
    assert str(error) == "Give a number."
    assert str(pickle.loads(pickle.dumps(error))) == "Give a number."  # from another process
