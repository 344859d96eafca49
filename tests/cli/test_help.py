"""The help of every command explains every option."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import fields

import pytest

from matchattention.cli.main import COMMANDS
from matchattention.cli.patterns import PATTERNS
from matchattention.data.datasets import FolderPatterns


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_line(command: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"matchattention.cli.{command.replace('-', '_')}").add_arguments(parser)
    options = [action for action in parser._actions if action.option_strings]
    assert [action.option_strings[0] for action in options if not action.help] == []


def test_every_pattern_has_an_option() -> None:
    assert list(PATTERNS) == [field.name for field in fields(FolderPatterns)]
