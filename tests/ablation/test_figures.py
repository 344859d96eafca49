"""Every figure measures and draws on a CPU; what the measurements mean is tested on made-up truth."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from matchattention.ablation.figures import cascade, operator_tokens, self_positions
from matchattention.ablation.figures.table import FIGURES, figure_module
from matchattention.cli.main import main
from matchattention.models.registry import NETWORKS, network_config
from matchattention.synth.world import config as world

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    scenes = replace(world.PRESETS["small"], layouts={"flying": 1.0}, photos=0.0, floating_count=4)
    monkeypatch.setitem(world.PRESETS, "quick", scenes)


def figure(tmp_path, name, *more):
    words = ["figure", name, "--device", "cpu", "--seconds", "0.01", "--output", str(tmp_path)]
    return main([*words, "--picture", str(tmp_path / "picture.png"), *more])


def measured(tmp_path, name):
    return json.loads((tmp_path / f"figure-{name}-cpu.json").read_text())


def line_of(occluded, known=None, disparity=None):
    """A view of one row of eight tokens."""
    occluded = torch.tensor([occluded], dtype=torch.bool)
    known = torch.ones_like(occluded) if known is None else torch.tensor([known], dtype=torch.bool)
    disparity = torch.full(occluded.shape, 5.0) if disparity is None else torch.tensor([disparity])
    zeros = torch.zeros(*occluded.shape, 1, 2)
    return self_positions.View(zeros, occluded, torch.zeros_like(occluded), known, disparity)


def along_row(*x):
    return torch.stack((torch.tensor([x], dtype=torch.float32), torch.zeros(1, len(x))), -1)


def test_an_arrow_reaches_a_visible_token_of_its_surface():
    view = line_of([1, 1, 0, 0, 1, 0, 0, 1], [1, 1, 1, 0, 1, 1, 1, 1], [5.0, 5.0, 5.5, 5.0, 9.0, 5.0, 5.0, 5.0])
    visible, same = self_positions.reached(view, along_row(2.2, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0))
    assert visible[0].tolist() == [True, False, True, False, True, True, True, False]  # unknown; beyond the map
    assert same[0, [0, 4]].tolist() == [True, False]  # 5.5 is near 5, 5 is not near 9


def test_the_window_around_an_arrows_end():
    view = line_of([1, 1, 1, 1, 0, 1, 1, 1])
    visible, _ = self_positions.seen(view, along_row(1.0, 1.0, 1.9, 0.0, 0.0, 0.0, 0.0, -1.5), (1, 4))
    # From one token before the end, rounded down, to two behind it.
    assert visible[0].tolist() == [False, True, True, True, True, True, False, True]
    assert self_positions._offsets(1) == range(1)


def test_the_side_of_the_nearest_visible_token():
    view = line_of([1, 1, 1, 0, 1, 1, 0, 1], disparity=[5.0, 5.0, 5.0, 5.0, 5.0, 9.0, 9.0, 5.0])
    arrows = along_row(1.0, -1.0, 1.0, 0.0, -1.0, -1.0, 0.0, 1.0)
    occluded = view.occluded[0]
    right, decided = self_positions.towards_visible(view, arrows, same_surface=False)
    assert decided[0][occluded].all()
    assert right[0][occluded].tolist() == [True, False, True, True, False, False]
    right, decided = self_positions.towards_visible(view, arrows, same_surface=True)
    assert decided[0][occluded].all()
    assert right[0][occluded].tolist() == [True, False, True, True, False, False]
    right, decided = self_positions.towards_visible(view, -arrows, same_surface=True)
    assert right[0][occluded].tolist() == [False, True, False, False, True, True]


def test_another_surface_is_no_goal():
    view = line_of([0, 1, 1, 0, 1, 1, 1, 1], disparity=[9.0, 5.0, 5.0, 9.0, 9.0, 5.0, 5.0, 5.0])
    _, decided = self_positions.towards_visible(view, along_row(*[1.0] * 8), same_surface=True)
    assert decided[0, [1, 2, 5]].tolist() == [False, False, False]
    right, decided = self_positions.towards_visible(view, along_row(*[-1.0] * 8), same_surface=True)
    assert (right & decided)[0, 4]  # the nearest of its surface is on the left


def test_occlusion_at_token_centres(monkeypatch):
    class Fixed:
        config = network_config("rt")

        def __call__(self, image0, image1):
            return type("Found", (), {"self_position": torch.ones(2, 8, 16, 4, 2)})

    from matchattention.data.batch import Batch

    images = torch.zeros(1, 3, 32, 64)
    field0 = torch.stack((torch.full((1, 32, 64), -8.0), torch.zeros(1, 32, 64)), -1)
    occluded = torch.zeros(1, 32, 64, dtype=torch.bool)
    occluded[:, :, :8] = True  # matches of the first 8 px lie outside
    occluded[:, 10, 42] = True
    known = torch.ones_like(occluded)
    left, right = self_positions.views_of(
        Fixed(), Batch(images, images, field0, -field0, known, known, occluded, ~known)
    )
    assert left.occluded[:, :2].all()
    assert left.occluded.sum() == 17
    assert left.occluded[2, 10]
    assert left.outside.sum() == 16
    assert not right.occluded.any()
    assert (left.arrows[..., 1] == 0).all()  # one row of keys: y steers nothing


def test_self_positions(tmp_path, capsys):
    words = ["--scenes", "quick", "--size", "64x96", "--count", "2", "--pool-folder", str(tmp_path / "pool")]
    assert figure(tmp_path, "self-positions", *words) == 0
    data = measured(tmp_path, "self-positions")
    shares = data["shares"]
    assert data["pairs"] == 2
    assert 0 <= shares["occluded/same surface/arrow/head 0"]["mean"] <= shares["occluded/visible/arrow/head 0"]["mean"]
    assert (tmp_path / "picture.png").stat().st_size > 1000
    assert "Mean arrow of an occluded token" in self_positions.sentence(data)


def test_the_page_quotes_the_committed_measurement():
    data = json.loads((ROOT / "benchmarks/results/figure-self-positions-cpu.json").read_text())
    page = (ROOT / "docs/ablations.md").read_text()
    for what in ("visible", "same surface", "window sees visible", "window sees same surface"):
        arrow, *others = (data["shares"][f"occluded/{what}/{way}/mean of heads"] for way in self_positions.WAYS)
        cells = [f"{arrow['mean']:.1f} ± {arrow['standard_error']:.1f} %"]
        cells += [f"{share['mean']:.1f} ± {share['standard_error']:.1f}" if share["mean"] else "0" for share in others]
        assert f"| {' | '.join(cells)} |" in page
    for kind in self_positions.KINDS:
        share = data["shares"][f"{kind}/{self_positions.GOALS[1]}/arrow/mean of heads"]
        assert f"{share['mean']:.1f} ± {share['standard_error']:.1f} %" in page


def test_cascade_ends_at_rt():
    steps = [config for _, config in cascade.configs()]
    assert steps[0] == NETWORKS["rt-cascade"].config
    assert steps[-1] == NETWORKS["rt"].config
    for before, after in zip(steps, steps[1:]):
        assert (before.compression != after.compression) + (before.windows != after.windows) == 1


def test_cascade(tmp_path, monkeypatch):
    monkeypatch.setattr(cascade, "STEPS", (cascade.STEPS[1], cascade.STEPS[-1]))
    assert figure(tmp_path, "cascade", "--size", "32x64") == 0
    steps = measured(tmp_path, "cascade")["steps"]
    assert [row["flops"] for row in steps] == sorted((row["flops"] for row in steps), reverse=True)
    assert all(0 < row["operator_percent"] < 100 for row in steps)
    assert (tmp_path / "picture.png").is_file()


def test_neighbourhood_attention_is_attention_to_the_neighbours():
    height, width, heads, channels = 20, 24, 2, 4  # tiles overhang below and on the right
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, height, width, heads, channels)
    attention = operator_tokens.neighbourhood(height, width, torch.device("cpu"))
    found = attention(*(operator_tokens.in_tiles(part) for part in (q, k, v)))
    y, x = operator_tokens.tile_order(height, width)
    for row, column in ((0, 0), (7, 15), (8, 16), (19, 23), (11, 3)):
        rows = slice(max(row - 1, 0), row + 3)
        columns = slice(max(column - 1, 0), column + 3)
        keys, values = (part[0, rows, columns].flatten(0, 1) for part in (k, v))  # (n, heads, c)
        weights = (torch.einsum("hc,nhc->hn", q[0, row, column], keys) / channels**0.5).softmax(-1)
        expected = torch.einsum("hn,nhc->hc", weights, values)
        place = int(torch.nonzero((y == row) & (x == column)))
        torch.testing.assert_close(found[0, :, place], expected)


def test_operator_tokens(tmp_path):
    assert figure(tmp_path, "operator-tokens", "--count", "16") == 0
    cases = measured(tmp_path, "operator-tokens")["cases"]
    assert {row["method"] for row in cases} == {"match", "neighbourhood", "global"}
    assert all(row["median_ms"] > 0 for row in cases), cases
    assert figure(tmp_path, "operator-tokens", "--draw", str(tmp_path / "figure-operator-tokens-cpu.json")) == 0


def test_size_scan(tmp_path):
    assert figure(tmp_path, "size-scan", "--size", "32x64") == 0
    assert measured(tmp_path, "size-scan")["sizes"][0]["eager"]["median_ms"] > 0


def test_accuracy_latency_from_the_committed_files(tmp_path):
    assert figure(tmp_path, "accuracy-latency") == 0
    data = measured(tmp_path, "accuracy-latency")
    assert data["points"]
    assert (tmp_path / "picture.png").is_file()


def test_error_over_pairs(tmp_path, capsys):
    run = {"seed": 1, "real": {}, "by_pair": {}}
    runs = [
        {
            **run,
            "row": "rt",
            "pairs": pairs,
            "measures": {"rendered/all/bad1": 1e5 / pairs, "rendered/occluded/bad1": 50.0},
        }
        for pairs in (2000, 4000)
    ]
    empty = {"format": "matchattention-ablations-1", "budget": {}, "real_pairs": [], "costs": {}, "failures": []}
    (tmp_path / "results.json").write_text(json.dumps({**empty, "runs": runs}))
    log = tmp_path / "log.jsonl"
    log.write_text('{"kind": "train", "samples": 640}\n{"kind": "validation", "rendered/bad1": 12.5}\n')
    assert figure(tmp_path, "error-over-pairs", "--from", str(tmp_path / "results.json"), str(log)) == 0
    data = measured(tmp_path, "error-over-pairs")
    assert [point["rendered/all/bad1"]["mean"] for point in data["points"]] == [50.0, 25.0]
    assert data["logs"] == {tmp_path.name: [{"pairs": 640, "bad1": 12.5}]}
    log.write_text("not a log")
    assert figure(tmp_path, "error-over-pairs", "--from", str(log)) == 2
    assert "no log of a training" in capsys.readouterr().err


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_two_functions(name):
    module = figure_module(name)
    assert callable(module.measure)
    assert callable(module.draw)


def test_bad_input(tmp_path, capsys):
    assert figure(tmp_path, "nonsense") == 2
    assert "There is no figure 'nonsense'" in capsys.readouterr().err
    assert figure(tmp_path, "cascade", "--draw") == 2
    assert "measure it first" in capsys.readouterr().err
    assert figure(tmp_path, "cascade", "--size", "33x64") == 2
    assert "multiples of 32" in capsys.readouterr().err
