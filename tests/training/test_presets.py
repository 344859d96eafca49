"""A recipe tells what a run did, not where its files lay."""

from __future__ import annotations

from matchattention.training.presets import Preset, SourceConfig


def test_a_recipe_names_files_but_not_where_they_lie():
    sources = (SourceConfig("scenes", preset="mixed"), SourceConfig("data", preset="kitti2015/training:/home/me/kitti"))
    recipe = Preset("", start="/home/me/rt.safetensors", sources=sources).to_dict()
    assert recipe["start"] == "rt.safetensors"
    assert [source["preset"] for source in recipe["sources"]] == ["mixed", "kitti2015/training:kitti"]
    assert Preset("", start="rt").to_dict()["start"] == "rt"
