"""A recipe tells what a run did, not where its files lay."""

from __future__ import annotations

import pytest

from matchattention.errors import InputError
from matchattention.training.presets import Preset, SourceConfig
from matchattention.training.recipe import Stage


def test_a_recipe_names_files_but_not_where_they_lie():
    sources = (SourceConfig("scenes", preset="mixed"), SourceConfig("data", preset="kitti2015/training:/home/me/kitti"))
    recipe = Preset("", start="/home/me/rt.safetensors", sources=sources).to_dict()
    assert recipe["start"] == "rt.safetensors"
    assert [source["preset"] for source in recipe["sources"]] == ["mixed", "kitti2015/training:kitti"]
    assert Preset("", start="rt").to_dict()["start"] == "rt"


@pytest.mark.parametrize(("height", "width"), [(40, 64), (64, 40), (0, 64), (64, 0)])
def test_crops_are_multiples_of_32(height, width):
    assert Stage(64, 96, 2).width == 96
    with pytest.raises(InputError, match=f"multiples of 32 px, not {height}x{width}"):
        Stage(height, width, 2)
