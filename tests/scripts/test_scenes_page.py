"""The page of scenes: the sheet's layout, the table's content, and that a person's remarks survive."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from matchattention.errors import InputError
from matchattention.synth.stream.statistics import MEASURES, Pair, summarise
from tests.scripts.loading import load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("scenes_page")


def pair(level: float) -> Pair:
    generator = torch.Generator().manual_seed(round(level))
    image = (level + 20 * torch.rand((3, 32, 48), generator=generator)).clamp(0, 255)
    disparity = torch.linspace(1, 6, 48).expand(32, 48)
    return Pair(image, image, disparity, torch.ones(32, 48, dtype=torch.bool), disparity > 5)


def test_sheet_has_a_cell_for_each_pair(script: ModuleType, tmp_path: Path):
    pytest.importorskip("matplotlib")
    image_module = pytest.importorskip("PIL.Image")
    script.contact_sheet([pair(level) for level in range(20, 200, 20)], tmp_path / "images" / "sheet.jpg")
    with image_module.open(tmp_path / "images" / "sheet.jpg") as sheet:
        assert sheet.size == (8 * script.CELL[1], 2 * 2 * script.CELL[0])


def test_page_has_every_measure_and_keeps_remarks(script: ModuleType, tmp_path: Path):
    sets = [summarise("Rendered", [pair(50), pair(90)]), summarise("Real (images)", [Pair(*pair(70)[:2])])]
    target = tmp_path / "page.md"
    target.write_text("old\n\n## What it shows\n\nA remark.\n", encoding="utf-8")
    text = script.page(sets, "python x", target)
    assert all(item.title in text for item in MEASURES.values())
    assert text.rstrip().endswith("A remark.")
    assert "| Rendered (2) | Real (images) (1) |" in text
    assert "old" not in text
    row = next(line for line in text.splitlines() if line.startswith("| disparity,"))
    assert row.rstrip().endswith("| – |")  # images alone have no disparity


def test_histograms_are_drawn(script: ModuleType, tmp_path: Path):
    pytest.importorskip("matplotlib")
    script.histograms([summarise("Rendered", [pair(50)])], tmp_path / "images" / "h.png")
    assert (tmp_path / "images" / "h.png").stat().st_size > 10_000


def test_real_pairs_must_be_named(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["scenes_page.py", "--count", "1", "--size", "32", "48", "--docs", str(tmp_path)])
    monkeypatch.setattr(script, "SceneStream", lambda *_: FakeStream())
    with pytest.raises(InputError, match="--real"):
        script.main()


class FakeStream:
    def next(self):
        from matchattention.data.batch import Batch

        image = torch.rand(1, 3, 32, 48) * 255
        field = -torch.ones(1, 32, 48, 2)
        known = torch.ones(1, 32, 48, dtype=torch.bool)
        return Batch(image, image, field, -field, known, known, ~known, ~known)
