"""A checkpoint is ours to license only where nobody else's data or weights went in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from matchattention.training.card import OURS, UNKNOWN, data_licenses, license_of, photo_bank_state
from matchattention.training.distillation import DistillationConfig
from matchattention.training.presets import Preset, SourceConfig

RENDERED = Preset("", sources=(SourceConfig("scenes"), SourceConfig("photos")))
KITTI = SourceConfig("data", preset="kitti2015/training:/data/kitti")
OWN = SourceConfig("data", preset="folder:/data/pairs")


def licence(preset: Preset, given: str | None = None) -> str:
    return license_of(preset, data_licenses(preset, given))


@pytest.mark.parametrize("start", [None, "rt"])
def test_rendered_pairs_and_our_weights_are_ours(start: str | None) -> None:
    assert licence(replace(RENDERED, start=start)) == OURS


def test_terms_of_every_dataset_are_named_and_ours_are_not() -> None:
    mixed = replace(RENDERED, sources=(*RENDERED.sources, KITTI, OWN))
    found = data_licenses(mixed)
    assert found["kitti2015/training:kitti"] == "CC BY-NC-SA 3.0"
    assert found["folder:pairs"] == UNKNOWN
    said = licence(mixed)
    assert said.startswith("subject to")
    assert "kitti2015/training:kitti (CC BY-NC-SA 3.0)" in said
    assert f"folder:pairs ({UNKNOWN})" in said
    assert "scenes" not in said
    assert "folder:pairs (CC0)" in licence(replace(RENDERED, sources=(OWN,)), "CC0")


def test_weights_and_teachers_of_others_count() -> None:
    assert f"starting weights theirs.pth ({UNKNOWN})" in licence(replace(RENDERED, start="/data/theirs.pth"))
    taught = replace(RENDERED, distillation=DistillationConfig(teacher="/data/theirs.pth"))
    assert f"teacher theirs.pth ({UNKNOWN})" in licence(taught)
    assert licence(replace(RENDERED, distillation=DistillationConfig(teacher="rt"))) == OURS


def test_the_photo_bank_is_told_where_scenes_could_use_it() -> None:
    assert photo_bank_state(replace(RENDERED, sources=(OWN,))) == "not used"
    named = SourceConfig("photos", preset="bank.safetensors")
    assert photo_bank_state(replace(RENDERED, sources=(named,))) == "used"
