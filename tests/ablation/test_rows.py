from dataclasses import replace

import pytest

from matchattention.ablation.paper import TABLE_6, TABLE_7
from matchattention.ablation.rows import CLAIMS, NETWORK_ROWS, SCENE_ROWS, TABLES, choose_rows
from matchattention.models.registry import NETWORKS, RT
from matchattention.synth.sensor.config import SensorConfig
from matchattention.synth.world.config import SceneConfig
from matchattention.training.presets import TINY


@pytest.mark.parametrize("row", NETWORK_ROWS, ids=lambda row: row.name)
def test_a_row_is_the_registered_network_and_the_papers(row):
    entry = NETWORKS[row.name]
    assert row.network_config(RT) == entry.config
    assert TABLE_6[row.name].parameters == entry.paper_parameters
    row.network_config(TINY)  # also of the network that tests train


@pytest.mark.parametrize("row", SCENE_ROWS, ids=lambda row: row.name)
def test_a_scene_row_changes_what_the_renderer_knows(row):
    changed = row.scene_config(SceneConfig())
    assert changed != SceneConfig()
    assert replace(changed, **{name: getattr(SceneConfig(), name) for name in row.scenes}) == SceneConfig()
    SensorConfig.preset(changed.sensor)


def test_tables_and_claims_name_rows():
    assert set(TABLES["6"]) == set(TABLE_6)
    assert set(TABLES["7"]) == set(TABLE_7)
    assert {claim.row for claim in CLAIMS} <= set(TABLES["6"])


def test_the_baseline_comes_first():
    assert [row.name for row in choose_rows("6", ["rt-dot", "rt-dot"])] == ["rt", "rt-dot"]
