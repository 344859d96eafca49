"""The page's tables come out of whole runs and of stopped ones."""

import runpy
from pathlib import Path

import pytest

PAGE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "performance_page.py"))
TIME = {"median_ms": 1.5, "p90_ms": 1.6, "runs": 9, "peak_bytes": 2**30}
HEAD = {"network": "rt", "trained_weights": False, "shape": [512, 1024], "precision": "fp16", "flops": 6e10}


def test_a_run_that_was_stopped_before_its_first_result():
    assert "60.0 GFLOP" in PAGE["network_section"](HEAD)
    assert "| case |" in PAGE["operator_section"]({})
    assert "PyTorch None" in PAGE["where"]({})


def test_a_run_that_was_stopped_on_its_way():
    modes = {
        "fused-graph": {**TIME, "busy_us": 1425.0, "attention_share": 0.25, "attention_us": {"block_attention": 9.0}}
    }
    text = PAGE["network_section"]({**HEAD, "modes": {**modes, "eager-graph": {"failed": "RuntimeError: no"}}})
    assert "| fused-graph | 1.500 (1.600) | 1.00 |  | 5.0 % | 25.0 % |" in text
    assert "| eager-graph | RuntimeError: no | – |  |  |  |" in text
    assert "`block_attention*`: the operator with" in text
    rows = [{"width": 1024, "failed": "RuntimeError: no"}]
    assert "| 1024 | RuntimeError: no |" in PAGE["network_section"]({**HEAD, "parity_with_fp32": rows})


def test_a_whole_run():
    parity = {"width": 1024, "mean_px": 0.01, "mean_px_first_quarter": 0.02, "mean_px_last_quarter": 0.03}
    large = {"2K": {"shape": [1088, 2048], **TIME}}
    growth = {"growth_exponent": 1.0, "growth_exponent_over_all_passes": 0.9, "memory_growth_exponent": 0.8}
    own = {"operator_us": 120.4, "fused_busy_us": 1500.0, "share": 0.0803}
    text = PAGE["network_section"](
        {**HEAD, "parity_with_fp32": [parity], "large": large, **growth, "operator_beside_fused_pass": own}
    )
    assert "| 1024 | 0.0100 | 0.0200 | 0.0300 |" in text
    assert "| 2K | 2048x1088 | 1.500 (1.600) | 1.00 |" in text
    assert "power 1.000, with the pixels of all passes to the power 0.900; memory with pixels to the power 0.8" in text
    assert "takes 120 us: 8.0 % of the 1500 us" in text


def test_the_operators_launches_are_shown_where_they_were_timed():
    timed = {**TIME, "over_floor": 9.0, "over_floor_and_launches": 1.25}
    case = {"name": "small", "positions": "smooth", "forward": timed, "forward_backward": timed}
    failed = {"name": "large", "positions": "smooth", "failed": "no"}
    rows = PAGE["operator_section"]({"cases": [case, failed], "launch_ms": 0.0015}).splitlines()
    assert rows[0] == "A kernel that changes one number takes 1.50 us."
    assert rows[-2] == "| small | smooth | 1.500 (1.600) | 9.00 (1.25) | – | 1.500 (1.600) | 9.00 (1.25) |"
    assert len({row.count("|") for row in rows[2:]}) == 1
    del timed["over_floor_and_launches"]
    rows = PAGE["operator_section"]({"cases": [case, failed]}).splitlines()
    assert rows[-2] == "| small | smooth | 1.500 (1.600) | 9.00 | – | 1.500 (1.600) | 9.00 |"


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    kernels = [{"name": "block_attention_kernel", "total_us": 9.0}, {"name": "unheard_of", "total_us": 1.0}]
    timed = {**TIME, "floor_ms": 1.0}
    whole = {
        "operator-nvidia-h200": {
            "cases": [
                {"name": "s3-8", "positions": "smooth", "shape": [1, 8, 8, 4, 64], "forward": timed},
                {"name": "s3-9", "positions": "smooth", "failed": "no"},
            ]
        },
        "network-rt-nvidia-h200": {
            **HEAD,
            "modes": {"fused-graph": {**TIME, "kernels": kernels, "busy_us": 10.0}},
            "large": {"2K": {"shape": [1088, 2048], "mode": "fused-graph", **TIME}, "4K": {"failed": "no"}},
        },
    }
    sizes = []
    for name, results in (("nothing", {}), ("whole", whole)):
        PAGE["draw"](results, tmp_path / f"{name}.png")
        sizes.append((tmp_path / f"{name}.png").stat().st_size)
    assert sizes[0] < sizes[1] / 3


def test_scenes():
    rate = {"pairs_per_s": 647.0, "peak_gib": 3.22, "workers": 5}
    stages = {"probe": 0.1, "tables_and_shadow": 0.2, "cast": 0.3, "shade": 0.7, "render_all": 1.2}
    text = PAGE["scenes_section"](
        {
            "environment": {},
            "sustained_512x768": rate,
            "ms_per_pair_512x768": stages,
            "sustained_512x768_clean": rate,
            "sustained_320x640": {"failed": "no"},
            "ms_per_pair_320x640": {"left_out": True},
        }
    )
    assert "| 512x768 | default | 647 | 3.2 | 5 |" in text
    assert "| 512x768 | none | 647 |" in text
    assert "| 512x768 | 0.10 | 0.20 | 0.30 | 0.70 | 1.20 |" in text
    assert "320x640" not in text


def test_a_predictor_and_its_first_call():
    ways = {"tensors, cold": {"ms_a_pair": 2.0, "mode": "fused-graph"}, "batch of 8": {"failed": "RuntimeError: no"}}
    first = {
        "first call, full cache": {"import_s": 1.0, "load_s": 0.5, "first_call_s": 1.75, "first_warm_start_s": 0.1}
    }
    text = PAGE["predictor_section"]({**HEAD, "ways": ways, "first_call": first})
    assert "| tensors, cold | 2.00 | 500.0 | fused-graph |" in text
    assert "| batch of 8 | RuntimeError: no |  |  |" in text
    assert "| first call, full cache | 0.5 | 1.8 |" in text
    assert "first pair" not in PAGE["predictor_section"]({**HEAD, "ways": ways})


def test_peers_stand_beside_ours_mode_by_mode():
    networks = {"ours": {"fused-graph": TIME}, "theirs": {"eager": TIME, "compiled-graph": TIME}}
    rows = PAGE["peers_section"]({"networks": networks}).splitlines()
    assert rows[2] == "| ours |  |  |  |  | 1.500 (1.600) |"
    assert rows[3] == "| theirs | 1.500 (1.600) |  |  | 1.500 (1.600) |  |"
