"""The search for the largest batch, and a whole case on a CPU."""

from __future__ import annotations

import pytest
import torch

from matchattention.bench import training_limits
from matchattention.bench.training_limits import bench_limits, largest
from matchattention.models.registry import NETWORKS, Registered
from matchattention.training.presets import TINY


@pytest.mark.parametrize("limit", [0, 1, 2, 7, 16, 100, 256])
@pytest.mark.parametrize("start", [1, 20, 500])
def test_the_largest_batch_is_found_within_a_sixteenth(limit, start):
    asked = []

    def fits(number: int) -> bool:
        asked.append(number)
        return number <= limit

    found = largest(fits, start, 256)
    assert found <= limit
    assert limit - found <= limit // 16
    assert len(asked) == len(set(asked)) <= 12


def test_memory_that_runs_out_ends_the_search_not_the_bench(monkeypatch):
    monkeypatch.setitem(NETWORKS, "tiny", Registered(TINY, "for a test"))
    step = training_limits.one_step

    def limited(device, config, shape, pairs, recompute, mode, seconds):
        if pairs > (3 if recompute else 1):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return step(device, config, shape, pairs, recompute, mode, seconds)

    monkeypatch.setattr(training_limits, "one_step", limited)
    kept = []
    results = bench_limits(
        torch.device("cpu"), ["tiny"], [(32, 64)], most=4, seconds=0.01, say=lambda text: None, keep=kept.append
    )
    batches = [(case["recompute"], case["largest"]["batch"]) for case in results["cases"]]
    assert batches == [(False, 1), (True, 3)]
    assert all(case["tflops"] > 0 for case in results["cases"])
    assert len(kept) == 2
