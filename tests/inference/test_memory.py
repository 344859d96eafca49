"""What does not fit is cut into strips or halved, with a warning, and comes back right."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from matchattention.errors import InputError, InputWarning
from matchattention.inference.predictor import Predictor
from matchattention.models import network
from matchattention.models.registry import NETWORKS
from matchattention.runtime import memory
from matchattention.runtime.memory import MemoryPlan, all_pairs_bytes, needed_bytes, plans
from matchattention.runtime.tiling import match_by_plan, strips
from tests.inference.oracle import TINY, Oracle, encoded


def smooth_pair(height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y = np.linspace(0, 20, height)[:, None]
    disparity = np.rint(4 * (10 + y + np.zeros((1, width)))) / 4
    left, right = encoded(disparity, disparity)
    return left, right, disparity


def test_plans_go_from_best_to_cheapest() -> None:
    options = plans(TINY, 4320, 7680)
    assert options[0] == MemoryPlan()
    assert options[1].strip_rows == 1536
    needs = [needed_bytes(TINY, 4320, 7680, plan, 4) for plan in options]
    assert needs == sorted(needs, reverse=True)
    assert all(plan.strip_rows is None for plan in plans(NETWORKS["rt-flow"].config, 4320, 7680))
    assert plans(TINY, 64, 64) == [MemoryPlan()]


def test_the_estimate_covers_what_was_measured() -> None:
    """Peak resident bytes of rt and rt-flow on a CPU in fp32, less those before the call."""
    measured = {
        ("rt", 256, 512): 97e6,
        ("rt", 512, 1024): 303e6,
        ("rt", 1024, 2048): 934e6,
        ("rt-flow", 512, 1024): 518e6,
    }
    for (name, height, width), peak in measured.items():
        estimate = needed_bytes(NETWORKS[name].config, height, width, MemoryPlan(), 4)
        assert peak < estimate < 6 * peak


def test_the_all_pairs_matrix_stops_growing_at_the_half_resolution_start() -> None:
    full_hd = all_pairs_bytes(1080, 1920)
    assert full_hd == 11 * (34 * 60) ** 2 * 4
    assert all_pairs_bytes(2160, 3840) == full_hd
    assert all_pairs_bytes(4320, 7680) == full_hd
    assert all_pairs_bytes(2048, 2048) == 11 * 4096**2 * 4  # the most there can be: 0.74 GB
    flow = NETWORKS["rt-flow"].config
    assert needed_bytes(flow, 4320, 7680, MemoryPlan(), 2) < 24e9  # within one large GPU's memory


def test_the_network_correlates_no_more_than_that(monkeypatch) -> None:
    """Small scale, real network: whatever the image's size, all pairs are those of the size where it starts."""
    monkeypatch.setattr(network, "LARGE", 128)
    model = network.MatchNetwork(replace(TINY, task="flow", windows=((4, 4),) * 4)).eval()
    sizes: list[tuple[int, ...]] = []
    model.initial.correlation.register_forward_hook(lambda _, inputs, output: sizes.append(tuple(output.shape)))
    with torch.inference_mode():
        for height, width in ((96, 128), (192, 256), (384, 512)):
            field = model(torch.rand(1, 3, height, width) * 255, torch.rand(1, 3, height, width) * 255).field
            assert field.shape == (2, height, width, 2)
    assert sizes == [(1, 12, 12)] * 3


@pytest.mark.parametrize(("height", "rows"), [(100, 40), (97, 32), (64, 64)])
def test_strips_cover_every_row_once(height: int, rows: int) -> None:
    kept = []
    for read, keep in strips(height, rows, overlap=8):
        assert read.start <= keep.start < keep.stop <= read.stop
        assert keep.stop - keep.start <= rows
        kept += range(keep.start, keep.stop)
    assert kept == list(range(height))


@pytest.mark.parametrize("plan", [MemoryPlan(strip_rows=64), MemoryPlan(halvings=1), MemoryPlan(halvings=2)], ids=str)
def test_a_plan_gives_the_same_field(plan: MemoryPlan) -> None:
    left, right, disparity = smooth_pair(301, 96)
    oracle = Oracle().knowing(96)
    images = [torch.from_numpy(image).permute(2, 0, 1)[None].float() for image in (left, right)]
    field = match_by_plan(lambda *call: oracle(*call).field, plan, *images, None)
    assert field.shape == (2, 301, 96, 2)
    inner = slice(4, -4)
    np.testing.assert_allclose(-field[0, inner, inner, 0], disparity[inner, inner], atol=0.3)
    np.testing.assert_allclose(field[1, inner, inner, 0], disparity[inner, inner], atol=0.3)
    if plan.strip_rows:
        np.testing.assert_array_equal(-field[0, ..., 0], disparity)
        assert all(start for height, width, start in oracle.calls if width == 96)


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")],
    ids=["cuda", "cpu"],
)
def test_running_out_steps_down_with_a_warning(error: BaseException) -> None:
    left, right, disparity = smooth_pair(1000, 80)
    oracle = Oracle(most_pixels=45_000, error=error).knowing(80)
    with pytest.warns(InputWarning, match="strips of 384 rows"):
        result = Predictor(oracle, check=False)(left, right)
    np.testing.assert_array_equal(result.disparity, disparity)
    assert result.disparity_right.shape == (1000, 80)


def test_an_estimate_that_does_not_fit_never_tries(monkeypatch) -> None:
    left, right, _ = smooth_pair(1000, 80)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 1.0)
    oracle = Oracle().knowing(80)
    with pytest.warns(InputWarning, match="does not fit"):
        result = Predictor(oracle, check=False)(left, right)
    assert result.disparity.shape == (1000, 80)
    assert max(height for height, *_ in oracle.calls) < 1000


def test_nothing_fits() -> None:
    left, right, _ = smooth_pair(1000, 80)
    with pytest.raises(InputError, match="lowest resolution"):
        Predictor(Oracle(most_pixels=10), check=False)(left, right)


def test_other_errors_are_not_swallowed() -> None:
    left, right, _ = smooth_pair(64, 64)
    with pytest.raises(RuntimeError, match="a defect"):
        Predictor(Oracle(most_pixels=10, error=RuntimeError("a defect")), check=False)(left, right)


def test_available_memory_is_plausible() -> None:
    assert 1e6 < memory.available_bytes(torch.device("cpu")) < 1e15
