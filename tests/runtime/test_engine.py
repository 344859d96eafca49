"""Sizes that come again are replayed; what a graph cannot hold runs all the same."""

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.inference import predictor
from matchattention.inference.predictor import Predictor
from matchattention.inference.video import VideoPredictor
from matchattention.runtime import engine
from matchattention.runtime.engine import Engine
from tests.geometry.pictures import pair
from tests.inference.oracle import TINY, Oracle


class FakePlan:
    """Stands in for a CUDA graph: remembers what it was made for."""

    made: list
    replays: list
    error: BaseException | None = None

    def __init__(self, network, shape, batch, mode, starts) -> None:
        FakePlan.made.append((shape, batch, mode, starts))
        self.network = network
        self.starts = starts

    def __call__(self, image0, image1, initial):
        assert (initial is not None) == self.starts
        FakePlan.replays.append(self.starts)
        if FakePlan.error is not None:
            raise FakePlan.error
        found = self.network(image0, image1, initial)
        return found if isinstance(found, torch.Tensor) else found.field


class Fused(torch.nn.Module):
    """Stands in for a fused network: takes bytes and returns the field alone."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error
        self.calls = 0

    def forward(self, image0, image1, initial=None):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return torch.full((2, *image0.shape[2:], 2), 7.0)


@pytest.fixture
def plans(monkeypatch):
    """An engine that believes to be on a GPU."""
    monkeypatch.setattr(FakePlan, "made", [], raising=False)
    monkeypatch.setattr(FakePlan, "replays", [], raising=False)
    monkeypatch.setattr(FakePlan, "error", None)
    monkeypatch.setattr(engine, "InferencePlan", FakePlan)
    monkeypatch.setattr(engine, "_on_gpu", lambda image: True)
    return FakePlan


def images(height: int = 16, width: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(1, 3, height, width), torch.ones(1, 3, height, width)


def test_a_graph_is_made_for_the_third_pair_of_a_size(plans) -> None:
    run = Engine(Oracle().knowing(32))
    for _ in range(2):
        run.field(*images())
    assert plans.made == []
    for _ in range(3):
        run.field(*images())
    assert plans.made == [((16, 32), 1, "capture", False)]


def test_only_the_latest_sizes_keep_their_graphs(plans) -> None:
    run = Engine(Oracle().knowing(32), "graph")
    for width in (32, 48, 64, 80, 96, 32, 96):
        run.field(*images(width=width))
    assert [shape[1] for shape, *_ in plans.made] == [32, 48, 64, 80, 96, 32]
    run.forget()
    run.field(*images(width=96))
    assert len(plans.made) == 7


def test_auto_goes_on_without_a_graph_but_an_explicit_mode_says_why(plans, caplog) -> None:
    plans.error = RuntimeError("operation not permitted when stream is capturing")
    run = Engine(Oracle().knowing(32))
    for _ in range(5):
        assert run.field(*images()).shape == (2, 16, 32, 2)
    assert len(plans.made) == 1
    assert "mode 'capture' failed at 32x16" in caplog.text
    with pytest.raises(RuntimeError, match="capturing"):
        Engine(Oracle().knowing(32), "capture").field(*images())


def test_a_fused_network_is_used_from_the_first_pair_and_captured_from_the_third(plans) -> None:
    plain, fused = Oracle().knowing(32), Fused()
    run = Engine(plain, fused=fused)
    for _ in range(2):
        assert (run.field(*images()) == 7).all()
    assert plans.made == []
    for _ in range(3):
        assert (run.field(*images()) == 7).all()
    assert plans.made == [((16, 32), 1, "fused", False)]
    assert plain.calls == []


def test_fused_steps_down_to_a_graph_and_then_to_single_kernels(plans, caplog) -> None:
    plain, fused = Oracle().knowing(32), Fused(RuntimeError("PTX is too new\nand more"))
    run = Engine(plain, fused=fused)
    for _ in range(4):
        assert (run.field(*images()) != 7).all()
    assert fused.calls == 1
    assert [mode for *_, mode, _ in plans.made] == ["capture"]
    plans.error = RuntimeError("operation not permitted when stream is capturing")
    for _ in range(2):
        assert run.field(*images()).shape == (2, 16, 32, 2)
    assert [record.message for record in caplog.records] == [
        "mode 'fused' failed at 32x16, going on without it: PTX is too new",
        "mode 'capture' failed at 32x16, going on without it: operation not permitted when stream is capturing",
    ]


def test_a_fused_network_that_runs_out_of_memory_is_for_the_memory_guard(plans) -> None:
    run = Engine(Oracle().knowing(32), fused=Fused(torch.OutOfMemoryError("CUDA out of memory")))
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            run.field(*images())


def test_on_a_cpu_the_network_itself_runs() -> None:
    fused = Fused()
    for _ in range(4):
        Engine(Oracle().knowing(32), fused=fused).field(*images())
    assert fused.calls == 0


def test_a_predictor_matches_by_fused_kernels_with_a_start_or_without(monkeypatch, plans) -> None:
    network, fused = Oracle().knowing(96), Fused()
    monkeypatch.setattr(predictor, "fuses_well", lambda model, device, dtype: True)
    monkeypatch.setattr(predictor, "fuse", lambda model, device, dtype: fused)
    left, right, _ = pair(32, 96)
    run = Predictor(network, "cpu", check=False)
    first = run(left, right)
    assert (first.relative_position == 7).all()
    assert network.calls == []
    run(left, right, initial=first)
    assert network.calls == []
    assert plans.made == [((32, 96), 1, "fused", True)]
    Predictor(network, "cpu", check=False, mode="eager")(left, right)
    assert fused.calls == 2


def test_a_stream_of_ten_frames_replays_the_fused_graph_from_the_second_on(monkeypatch, plans) -> None:
    network, fused = Oracle().knowing(96), Fused()
    monkeypatch.setattr(predictor, "fuses_well", lambda model, device, dtype: True)
    monkeypatch.setattr(predictor, "fuse", lambda model, device, dtype: fused)
    left, right, _ = pair(32, 96)
    results = list(VideoPredictor(Predictor(network, "cpu", check=False)).frames([(left, right)] * 10))
    assert len(results) == 10
    assert plans.made == [((32, 96), 1, "fused", True)]
    assert plans.replays == [True] * 9
    assert fused.calls == 10
    assert network.calls == []


def test_running_out_of_memory_is_for_the_memory_guard(plans) -> None:
    plans.error = torch.OutOfMemoryError("CUDA out of memory")
    run = Engine(Oracle().knowing(32))
    run.field(*images())
    run.field(*images())
    with pytest.raises(torch.OutOfMemoryError):
        run.field(*images())


def test_unknown_mode() -> None:
    with pytest.raises(ma.InputError, match="no mode 'warp'"):
        Engine(Oracle(), "warp")


def test_compiled_on_the_cpu_is_refused_where_it_needs_a_gpu() -> None:
    network = ma.create_model(TINY)
    left, right, _ = pair(32, 96)
    with pytest.raises(ma.InputError, match="needs a GPU"):
        Predictor(network, "cpu", mode="capture", check=False)(left, right)
    result = Predictor(network, "cpu", mode="eager", check=False)(left, right)
    assert np.isfinite(result.disparity).all()
