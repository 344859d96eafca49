"""Which files may enter the photo bank: licences as Debian writes them, never the evaluation's scenes."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.scripts.loading import load_script

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("build_photo_bank")


COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2020 Everybody
License: GPL-2+

Files: data/*.jpg
       data/deep/a.png
Copyright: 2021 Ann <ann@example.org>
 2022 Bob
License: CC-BY-SA-4.0

Files: data/secret.jpg
Copyright: 2021 Carl
License: GPL-3

License: CC-BY-SA-4.0
 The text.
"""


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("data/stone.jpg", "CC-BY-SA-4.0"),
        ("data/far/away.jpg", "CC-BY-SA-4.0"),
        ("data/deep/a.png", "CC-BY-SA-4.0"),
        ("data/secret.jpg", "GPL-3"),
        ("data/deep/b.png", "GPL-2+"),
    ],
)
def test_the_last_matching_paragraph_decides(script: ModuleType, name: str, licence: str):
    found, _ = script.licence_of(name, script.licences_of(COPYRIGHT))
    assert found == licence


def test_authors_are_kept(script: ModuleType):
    _, authors = script.licence_of("data/stone.jpg", script.licences_of(COPYRIGHT))
    assert authors == "2021 Ann <ann@example.org>, 2022 Bob"


@pytest.mark.parametrize("licence", ["CC0", "CC0-1.0", "public-domain", "CC-BY-3.0", "CC-BY-SA-4.0 or GPL-3",
                                     "CC-BY-4.0 and CC-BY-3.0", "GPL-2+ OR CC-BY-SA"])  # fmt: skip
def test_free_licences(script: ModuleType, licence: str):
    assert script.is_free(licence)


@pytest.mark.parametrize("licence", ["GPL-2+", "unknown", "CC-BY-NC-4.0", "CC-BY-ND-3.0", "GPL and CC-BY-SA", "MIT"])
def test_other_licences(script: ModuleType, licence: str):
    assert not script.is_free(licence)


@pytest.mark.parametrize("name", ["skimage/data/motorcycle_left.png", "samples/aloeL.jpg", "a/cones/im2.png"])
def test_evaluation_scenes_are_refused(script: ModuleType, name: str):
    assert script.EVALUATION.search(name)


def test_crops_cover_several_scales_and_skip_empty_ones(script: ModuleType, tmp_path: Path):
    image_module = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(0).integers(0, 255, (600, 1000, 3), dtype=np.uint8)
    noise[:, :750] = 90
    image_module.fromarray(noise).save(tmp_path / "a.png")
    picture = script.Picture("p", "1", "a.png", "CC0", "", tmp_path / "a.png", 4)
    found = script.tiles_of(picture)
    assert all(tile.shape == (256, 256, 3) for tile in found)
    assert 1 <= len(found) < 4  # those of the grey half are dropped
    clear = image_module.new("RGBA", (600, 600), (10, 20, 30, 0))
    clear.save(tmp_path / "clear.png")
    assert script.tiles_of(script.Picture("p", "1", "c", "CC0", "", tmp_path / "clear.png", 4)) == []


def test_the_committed_page_lists_free_licences_only(script: ModuleType):
    rows = [line.split("|") for line in (ROOT / "docs" / "photo-bank.md").read_text(encoding="utf-8").splitlines()
            if line.startswith("| ") and not line.startswith("| file")]  # fmt: skip
    assert len(rows) > 100
    assert all(script.is_free(row[3].strip()) for row in rows)
    assert not any(script.EVALUATION.search(row[1]) for row in rows)
