"""Flow pairs as files: what `folder-flow` reads is what was rendered, and a film goes through both frames."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from matchattention.data import datasets
from matchattention.data.formats import read_flo
from matchattention.synth.stream.export import export
from matchattention.synth.stream.export_flow import render_flow_pair
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS


def stream() -> SceneStream:
    config = replace(PRESETS["drive"], samples=1, shadow_size=32)
    return SceneStream(config, (48, 64), 1, 1, "cpu")


def test_files_hold_what_was_rendered(tmp_path: Path):
    export(stream(), "drive", 2, tmp_path / "pairs")
    assert sorted(path.name for path in (tmp_path / "pairs").iterdir()) == ["000000", "000001", "render.json"]
    samples = datasets.open("folder-flow", tmp_path / "pairs")
    assert len(samples) == 2
    pair, sample = render_flow_pair(stream(), 1), samples[1]
    np.testing.assert_array_equal(sample.frame1, pair.frame1)
    np.testing.assert_array_equal(sample.frame2, pair.frame2)
    np.testing.assert_array_equal(sample.flow, pair.forward)
    np.testing.assert_array_equal(sample.non_occluded, ~pair.occluded)
    np.testing.assert_array_equal(read_flo(tmp_path / "pairs" / "000001" / "flow_backward.flo"), pair.backward)
    assert 0.02 < pair.occluded.mean() < 0.9
    assert np.ptp(pair.forward[np.isfinite(pair.forward)]) > 1


def test_a_film_is_made_of_pairs_that_share_frames():
    first, second = (stream().rendered(range(0, 1), moments) for moments in ((0.0, 0.5), (0.5, 1.0)))
    whole = stream().rendered(range(0, 1))
    torch.testing.assert_close(first.depth[:, 0], whole.depth[:, 0])
    torch.testing.assert_close(second.depth[:, 1], whole.depth[:, 1])
    torch.testing.assert_close(first.depth[:, 1], second.depth[:, 0])
    assert not torch.allclose(first.depth[:, 1], whole.depth[:, 1])
    moved = [rendered.field[0, 0][rendered.valid[0, 0]].norm(dim=-1).median() for rendered in (first, whole)]
    assert 0.3 * moved[1] < moved[0] < 0.7 * moved[1]
