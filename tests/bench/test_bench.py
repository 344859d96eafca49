"""The benchmarks measure what they say, record where and when, and go on after a failure."""

import json

import pytest
import torch

from matchattention.bench import network as network_bench
from matchattention.bench import operator as operator_bench
from matchattention.bench import report, timing
from matchattention.bench.kernels import by_name, summarize
from matchattention.bench.scenes import image_pair, relative_positions, smooth_field
from matchattention.bench.training import wanted_steps
from matchattention.cli.main import main
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork
from matchattention.ops.match_attention.library import match_attention_flops

CPU = torch.device("cpu")
SMALL = NetworkConfig(channels=(16, 16, 32, 32), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))


def test_growth_exponent_of_known_laws():
    sizes = [1.0, 2.0, 4.0, 8.0]
    assert timing.growth_exponent(sizes, [3 * s for s in sizes]) == pytest.approx(1)
    assert timing.growth_exponent(sizes, [3 * s * s for s in sizes]) == pytest.approx(2)


def test_measure_runs_at_least_as_often_as_asked():
    calls = []
    found = timing.measure(lambda: calls.append(1), CPU, seconds=0.0, least=7)
    assert found.runs == 7
    assert len(calls) > 7
    assert 0 <= found.median_ms <= found.p90_ms


def test_smooth_field_is_smooth_but_for_jumps():
    field = smooth_field(64, 96, CPU, reach=32)
    step = (field[:, 1:] - field[:, :-1]).abs()
    assert 0 <= field.min() < field.max() <= 32
    assert (step < 0.5).float().mean() > 0.9
    assert (step > 1).any()


def test_random_positions_point_everywhere_inside():
    position = relative_positions("random", 1, 20, 30, 2, CPU)
    x = position[..., 0] + torch.arange(30).view(1, 1, 30, 1)
    y = position[..., 1] + torch.arange(20).view(1, 20, 1, 1)
    assert x.min() >= -1e-4
    assert x.max() <= 30 + 1e-4
    assert y.max() <= 20 + 1e-4
    assert x.std() > 5


def test_image_pair_matches_along_its_disparity():
    left, right, disparity = image_pair(32, 64, CPU)
    assert left.dtype == torch.uint8
    row, column = 16, 48
    d = disparity[row, column].item()
    low = int(column - d)
    between = right[0, :, row, low : low + 2].float()
    expected = between[:, 0] * (1 - (column - d - low)) + between[:, 1] * (column - d - low)
    assert (left[0, :, row, column] - expected).abs().max() <= 1.0


def test_operator_case_states_bytes_flops_and_floor():
    case = operator_bench.Case("small", 1, 6, 8, 2, 4, (1, 4), torch.float32, False)
    limits = operator_bench.Limits(bandwidth=1e9, launch_ms=0.5)
    found = operator_bench.run_case(case, CPU, limits, backward=True, seconds=0.0)
    tokens = 48
    features, positions, weights = tokens * 2 * 4 * 4, tokens * 2 * 4, tokens * 2 * 4 * 4
    moved = 4 * features + positions + weights
    assert found["forward"]["bytes"] == moved
    assert found["forward"]["floor_ms"] == pytest.approx(moved / 1e9 * 1e3)
    assert found["forward_backward"]["bytes"] == moved + 2 * (3 * features + positions) + features + weights
    for row, launches in ((found["forward"], 1), (found["forward_backward"], 2)):
        reachable = row["floor_ms"] + launches * 0.5
        assert row["over_floor_and_launches"] == pytest.approx(row["median_ms"] / reachable)
    assert found["flops"] == match_attention_flops(torch.Size((1, 6, 8, 2, 4)), torch.Size((1, 6, 8, 2, 4)), 1, 4)


def test_cases_of_a_4k_image_are_rts_largest_maps():
    cases = list(operator_bench.rt_cases_of_4k(torch.float16))
    assert [case.name for case in cases] == ["rt-4K-1/4-self", "rt-4K-1/4-cross"]
    assert {(case.height, case.width, case.channels) for case in cases} == {(544, 960, 2)}


def test_a_failing_case_is_recorded_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setattr(operator_bench, "SWEEP", (8, 12))
    honest = operator_bench.run_case

    def sometimes(case, *rest):
        if case.height == 8:
            raise RuntimeError("out of luck\nand more")
        return honest(case, *rest)

    monkeypatch.setattr(operator_bench, "run_case", sometimes)
    monkeypatch.setattr(operator_bench, "copy_bandwidth", lambda device: 1e9)
    found = operator_bench.bench_operator(CPU, seconds=0.0, most_side=12, say=lambda text: None)
    assert [("failed" in case) for case in found["cases"]] == [True, False]
    assert found["cases"][0]["failed"] == "RuntimeError: out of luck"


def test_network_bench_on_a_cpu(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(network_bench, "load_or_create", lambda name: (MatchNetwork(SMALL).eval(), False))
    found = network_bench.bench_network(
        CPU, shape=(32, 64), seconds=0.0, large=False, with_parity=False, say=lambda text: None
    )
    assert found["modes"]["eager"]["median_ms"] > 0
    assert found["modes"]["eager"]["ready_s"] > 0
    assert found["flops"] > 0
    assert found["trained_weights"] is False


def test_parity_states_both_ends_of_the_image():
    torch.manual_seed(0)
    row = network_bench.parity(MatchNetwork(SMALL).eval(), CPU, "bf16", (32, 64))
    assert row["width"] == 64
    assert 0 < row["mean_px"] <= row["max_px"]


def test_every_part_is_kept_as_soon_as_it_is_known(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(network_bench, "load_or_create", lambda name: (MatchNetwork(SMALL).eval(), False))
    monkeypatch.setattr(network_bench, "PARITY_SIZES", ((32, 64), (32, 96)))
    monkeypatch.setattr(network_bench, "LARGE_SIZES", {"2K": (32, 64)})
    kept = []
    network_bench.bench_network(
        CPU,
        shape=(32, 64),
        precision="bf16",
        modes=["eager", "eager-graph"],
        seconds=0.0,
        say=lambda text: None,
        keep=lambda results: kept.append(json.loads(json.dumps(results))),
    )
    assert [len(results["modes"]) for results in kept] == [1, 2, 2, 2, 2, 2]
    assert [len(results.get("parity_with_fp32", [])) for results in kept] == [0, 0, 0, 0, 1, 2]
    assert "needs a GPU" in kept[-1]["modes"]["eager-graph"]["failed"]
    assert kept[-1]["large"]["2K"]["mode"] == "eager"


def test_the_operators_cases_are_kept_one_by_one(monkeypatch):
    monkeypatch.setattr(operator_bench, "SWEEP", (8, 12))
    monkeypatch.setattr(operator_bench, "copy_bandwidth", lambda device: 1e9)
    kept = []
    operator_bench.bench_operator(
        CPU, seconds=0.0, most_side=12, say=lambda text: None, keep=lambda results: kept.append(len(results["cases"]))
    )
    assert kept == [1, 2, 2]


def test_kernels_of_a_trace_are_grouped_by_name_and_grid():
    def kernel(name, begin, duration, grid):
        facts = {"grid": grid, "block": [128, 1, 1], "registers per thread": 80, "shared memory": 512}
        return {"cat": "kernel", "name": name, "ts": begin, "dur": duration, "args": facts}

    found = summarize(
        [
            kernel("contract_kernel", 10.0, 4.0, [64, 1, 1]),
            kernel("contract_kernel", 15.0, 6.0, [64, 1, 1]),
            kernel("contract_kernel", 21.0, 1.0, [128, 1, 1]),
            kernel("block_attention_kernel", 30.0, 9.0, [64, 1, 1]),
            {"cat": "cpu_op", "name": "aten::add", "ts": 0.0, "dur": 99.0},
        ]
    )
    assert [(row["name"], row["launches"], row["total_us"]) for row in found["kernels"]] == [
        ("contract_kernel", 2, 10.0),
        ("block_attention_kernel", 1, 9.0),
        ("contract_kernel", 1, 1.0),
    ]
    assert (found["launches"], found["busy_us"], found["span_us"]) == (4, 20.0, 29.0)
    assert found["attention_share"] == pytest.approx(0.45)
    assert found["attention_us"] == {"block_attention": 9.0}
    assert [(row["name"], row["launches"], row["total_us"]) for row in by_name(found["kernels"])] == [
        ("contract_kernel", 3, 11.0),
        ("block_attention_kernel", 1, 9.0),
    ]


def test_the_operators_own_time_is_set_beside_the_fused_pass():
    fused, captured = {"busy_us": 1500.0}, {"busy_us": 9000.0, "attention_us": {"match_attention": 120.0}}
    results = {"modes": {"fused-graph": fused, "eager-graph": captured}}
    network_bench._add_operator_share(results, lambda text: None)
    assert results["operator_beside_fused_pass"]["share"] == pytest.approx(0.08)
    network_bench._add_operator_share({"modes": {"eager-graph": captured}}, lambda text: None)  # nothing to compare


def test_growth_counts_the_passes_at_half_resolution():
    assert network_bench.pixels_of_all_passes(1088, 2048) == 1088 * 2048
    assert network_bench.pixels_of_all_passes(4320, 7680) == 4320 * 7680 + 2160 * 3840 + 1080 * 1920
    sizes = {"2K": (1088, 2048), "8K": (4320, 7680)}
    large = {
        label: {"shape": size, "median_ms": 2e-6 * network_bench.pixels_of_all_passes(*size), "peak_bytes": None}
        for label, size in sizes.items()
    }
    results = {"large": large}
    network_bench._add_growth(results, lambda text: None)
    assert results["growth_exponent_over_all_passes"] == pytest.approx(1)
    assert results["growth_exponent"] > 1.05
    assert "memory_growth_exponent" not in results


def test_results_say_where_they_were_made(tmp_path):
    path = report.write("operator", CPU, tmp_path, {"cases": []})
    stored = json.loads(path.read_text())
    assert stored["cases"] == []
    assert {"date", "commit", "versions", "processor", "threads"} <= set(stored["environment"])


def test_training_bench_from_the_command_line(tmp_path, monkeypatch):
    from matchattention.bench import training as training_bench

    monkeypatch.setattr(training_bench, "create_model", lambda name: MatchNetwork(SMALL))
    words = ["bench", "training", "--device", "cpu", "--size", "64x64", "--batch", "1", "--seconds", "0"]
    assert main([*words, "--output", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "training-rt-cpu.json").read_text())
    assert stored["modes"]["eager"]["pairs_per_second"] > 0


def test_the_plain_operator_is_measured_where_nothing_is_compiled():
    assert wanted_steps(["eager"], gpu=False) == [("eager", "eager", "auto")]
    labels = [label for label, _, _ in wanted_steps(["capture", "graph"], gpu=True)]
    assert labels == ["capture", "capture, plain operator", "graph"]


def test_bad_size_is_one_sentence(capsys):
    assert main(["bench", "network", "--device", "cpu", "--size", "big"]) == 2
    assert "HEIGHTxWIDTH" in capsys.readouterr().err


def test_predictor_times_every_way_in_and_out(monkeypatch):
    from matchattention.bench import predictor
    from matchattention.bench.predictor import bench_predictor
    from matchattention.models import create_model
    from tests.inference.oracle import TINY

    monkeypatch.setattr(predictor, "load_or_create", lambda name: (create_model(TINY), False))
    monkeypatch.setattr(predictor, "FILES", 2)
    kept, said = [], []
    keep = lambda results: kept.append(len(results["ways"]))  # noqa: E731
    results = bench_predictor(torch.device("cpu"), "rt", (32, 64), "fp32", 0.0, False, said.append, keep)
    ways = results["ways"]
    assert list(ways)[:7] == [
        "network and confidence alone",
        "arrays, cold",
        "arrays, warm start",
        "arrays, disparity alone",
        "tensors, cold",
        "tensors, warm start",
        "batch of 8",
    ]
    assert any(label.startswith("files") for label in ways)
    assert any(label.startswith("stream") for label in ways)
    assert all(row["ms_a_pair"] > 0 for row in ways.values()), ways
    assert {row["mode"] for row in ways.values() if "mode" in row} == {"eager"}
    assert results["batch_gain"] > 0
    assert kept == list(range(1, 10))


def test_ways_compare_like_with_like(monkeypatch):
    """Arrays come as cameras give them, so that no copy is timed; what a batch finds is read as a single pair's is."""
    from matchattention.bench import predictor
    from matchattention.models import create_model
    from tests.inference.oracle import TINY

    read, given = [], []
    read_all, match = predictor.read_all, predictor.Predictor.match_together
    monkeypatch.setattr(predictor, "read_all", lambda result: read.append(read_all(result)))
    monkeypatch.setattr(
        predictor.Predictor, "match_together", lambda self, pairs: given.extend(pairs) or match(self, pairs)
    )
    ways = dict(predictor._ways(create_model(TINY), torch.device("cpu"), "fp32", (32, 64), 0.0))
    runs = ways["batch of 8"]()["runs"]
    assert len(read) == len(given) >= 8 * runs
    assert all(view.flags["C_CONTIGUOUS"] for pair in given for view in pair)
    assert [part.shape for part in read[0]] == [(32, 64, 2), (32, 64), (32, 64)]


def test_a_renderer_without_a_gpu_is_refused():
    from matchattention.bench.renderer import bench_renderer
    from matchattention.errors import InputError

    with pytest.raises(InputError, match="on a GPU"):
        bench_renderer(torch.device("cpu"))


def test_idle_share_is_what_no_kernel_fills():
    from matchattention.bench.kernels import idle_share

    assert idle_share(1500.0, 2.0) == pytest.approx(0.25)
    assert idle_share(2100.0, 2.0) == 0.0


def test_median_and_90th_of_a_hundred_runs(monkeypatch):
    monkeypatch.setattr(timing, "_clock", lambda function, runs: [float(ms) for ms in range(100, 0, -1)])
    found = timing.measure(lambda: None, torch.device("cpu"), 0.0)
    assert (found.median_ms, found.p90_ms) == (51.0, 91.0)


def test_a_copy_reads_and_writes_every_byte(monkeypatch):
    monkeypatch.setattr(timing, "measure", lambda *call, **options: timing.Timing(2.0, 2.0, 1, None))
    assert timing.copy_bandwidth(torch.device("cpu")) == pytest.approx(2 * 2**24 * 4 / 2e-3)
