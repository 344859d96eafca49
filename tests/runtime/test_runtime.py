"""Every mode takes starts and batches; sizes that come again are replayed; what fails runs a slower way."""

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.inference.predictor import Predictor
from matchattention.runtime import memory, precision, runtime
from matchattention.runtime.runtime import MODES, PAYS_FROM, Runtime
from tests.geometry.pictures import pair
from tests.inference.oracle import TINY, Oracle


class FakeGraph:
    """Stands in for a CUDA graph: remembers what it was made for and how often it was replayed."""

    made: list
    replays: list
    error: BaseException | None = None

    def __init__(self, run, shape, device, starts) -> None:
        FakeGraph.made.append((shape, starts))
        self.run, self.starts = run, starts

    def __call__(self, image0, image1, initial):
        assert (initial is not None) == self.starts
        FakeGraph.replays.append(self.starts)
        if FakeGraph.error is not None:
            raise FakeGraph.error
        return self.run(image0, image1, initial)


class Fused(torch.nn.Module):
    """Stands in for a fused network: takes bytes and returns the field, and nothing of its last stage."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error
        self.calls = 0

    def forward(self, image0, image1, initial=None):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return torch.full((2 * len(image0), *image0.shape[2:], 2), 7.0), None


@pytest.fixture
def graphs(monkeypatch):
    """A runtime that believes to be on a GPU."""
    monkeypatch.setattr(FakeGraph, "made", [], raising=False)
    monkeypatch.setattr(FakeGraph, "replays", [], raising=False)
    monkeypatch.setattr(FakeGraph, "error", None)
    monkeypatch.setattr(runtime, "PassGraph", FakeGraph)
    monkeypatch.setattr(runtime, "_has_graphs", lambda device: True)
    return FakeGraph


@pytest.fixture
def fused(monkeypatch):
    """A network that has fused kernels."""
    network = Fused()
    monkeypatch.setattr(runtime, "fuses_well", lambda model, device, dtype: True)
    monkeypatch.setattr(runtime, "fuse", lambda model, device, dtype: network)
    return network


def images(height: int = 16, width: int = 32, pairs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(pairs, 3, height, width), torch.ones(pairs, 3, height, width)


def test_a_graph_is_made_for_the_third_pair_of_a_size(graphs) -> None:
    match = Runtime(Oracle().knowing(32))
    for _ in range(2):
        match(*images())
    assert graphs.made == []
    assert match.ran == "eager"
    for _ in range(3):
        match(*images())
    assert graphs.made == [((1, 3, 16, 32), False)]
    assert match.ran == "eager-graph"


def test_a_pair_with_a_start_is_a_videos_and_gets_its_graph_at_once(graphs) -> None:
    match = Runtime(Oracle().knowing(32))
    match(*images(), torch.zeros(2, 16, 32, 2))
    assert graphs.made == [((1, 3, 16, 32), True)]
    match(*images())
    assert len(graphs.made) == 1


def test_only_the_latest_sizes_keep_their_graphs(graphs) -> None:
    match = Runtime(Oracle().knowing(32), mode="eager-graph")
    for width in (32, 48, 64, 80, 96, 32, 96):
        match(*images(width=width))
    assert [shape[3] for shape, _ in graphs.made] == [32, 48, 64, 80, 96, 32]
    match.forget()
    match(*images(width=96))
    assert len(graphs.made) == 7


def test_sizes_that_take_turns_are_captured_ever_more_rarely(graphs) -> None:
    match = Runtime(Oracle().knowing(32))
    for _ in range(100):
        for width in (32, 48, 64, 80, 96):
            match(*images(width=width))
    assert 5 <= len(graphs.made) <= 30  # of 500 passes; each takes the time of several


def test_auto_goes_on_without_a_graph_but_an_explicit_mode_says_why(graphs, caplog) -> None:
    graphs.error = RuntimeError("operation not permitted when stream is capturing")
    match = Runtime(Oracle().knowing(32))
    for _ in range(5):
        assert match(*images()).shape == (2, 16, 32, 2)
    assert len(graphs.made) == 1
    assert "mode 'eager-graph' failed at 32x16" in caplog.text
    with pytest.raises(RuntimeError, match="capturing"):
        Runtime(Oracle().knowing(32), mode="eager-graph")(*images())


def test_fused_kernels_run_from_the_first_pair_and_are_replayed_from_the_third(graphs, fused) -> None:
    plain = Oracle().knowing(32)
    match = Runtime(plain)
    ran = []
    for _ in range(5):
        assert (match(*images()) == 7).all()
        ran.append(match.ran)
    assert ran == ["fused"] * 2 + ["fused-graph"] * 3
    assert graphs.made == [((1, 3, 16, 32), False)]
    assert plain.calls == []


def test_fused_steps_down_to_single_kernels(graphs, fused, caplog) -> None:
    """As on a GPU whose programs have too little shared memory: it is said, and a slower way taken."""
    fused.error = RuntimeError("out of resource: shared memory, Required: 163840, Hardware limit: 101376\nand more")
    match = Runtime(Oracle().knowing(32))
    for _ in range(4):
        assert (match(*images()) != 7).all()
    assert fused.calls == 1
    assert match.ran == "eager-graph"
    graphs.error = RuntimeError("operation not permitted when stream is capturing")
    for _ in range(2):
        assert match(*images()).shape == (2, 16, 32, 2)
    assert match.ran == "eager"
    first, second = (record.message for record in caplog.records)
    assert first.startswith("mode 'fused' failed at 32x16, going on without it: RuntimeError: out of resource")
    assert second.startswith("mode 'eager-graph' failed at 32x16")
    assert "and more" not in first


def test_where_nothing_can_be_captured_fused_kernels_still_run(graphs, fused, caplog) -> None:
    graphs.error = RuntimeError("operation not permitted when stream is capturing")
    match = Runtime(Oracle().knowing(32))
    for _ in range(5):
        assert (match(*images()) == 7).all()
        assert match.ran == "fused"
    match(*images(), torch.zeros(2, 16, 32, 2))
    assert match.ran == "fused"
    assert len(graphs.made) == 1
    assert len(caplog.records) == 1


def test_kernels_that_fail_while_they_are_captured_leave_the_next_ones_their_graph(graphs, fused) -> None:
    fused.error = RuntimeError("out of resource: shared memory")
    match = Runtime(Oracle().knowing(32))
    start = torch.zeros(2, 16, 32, 2)  # captured at once
    assert (match(*images(), start) != 7).all()
    assert match.ran == "eager-graph"


def test_running_out_of_memory_is_for_the_memory_guard(graphs, fused) -> None:
    fused.error = torch.OutOfMemoryError("CUDA out of memory")
    match = Runtime(Oracle().knowing(32))
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            match(*images())


def test_a_graph_that_does_not_fit_leaves_the_pass_itself(graphs, fused) -> None:
    graphs.error = torch.OutOfMemoryError("CUDA out of memory")
    match = Runtime(Oracle().knowing(32))
    for _ in range(5):
        assert (match(*images()) == 7).all()
        assert match.ran == "fused"
    assert len(graphs.made) == 1  # and it is not tried again
    graphs.error = None
    for _ in range(3):
        match(*images(width=64))
    assert match.ran == "fused-graph"


def test_everything_runs_on_the_gpu_that_was_asked_for(monkeypatch) -> None:
    from contextlib import nullcontext

    from matchattention.inference import predictor

    entered = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: entered.append(device) or nullcontext())
    with precision.on(torch.device("cuda:1")), precision.on(torch.device("cpu")):
        assert entered == [torch.device("cuda:1")]
    for module in (runtime, predictor):
        monkeypatch.setattr(module, "on", lambda device: entered.append(device) or nullcontext())
    left, right, _ = pair(32, 96)
    run = Predictor(Oracle().knowing(96), "cpu", check=False)
    run(left, right)
    assert entered[1:] == [torch.device("cpu")]


def test_on_a_cpu_the_network_itself_runs(fused) -> None:
    match = Runtime(Oracle().knowing(32), "cpu")
    for _ in range(4):
        match(*images())
    assert fused.calls == 0
    assert match.ran == "eager"


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_takes_a_batch_and_a_start(mode, graphs, monkeypatch) -> None:
    """On a CPU with graphs that are none, and the interpreter for fused kernels."""
    pytest.importorskip("triton")
    if mode.startswith("compiled"):
        monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    torch.manual_seed(0)
    network = ma.create_model(TINY)
    left, right, _ = pair(32, 64)
    views = [torch.from_numpy(np.stack([view, view[:, ::-1]])).permute(0, 3, 1, 2) for view in (left, right)]
    start = torch.zeros(4, 32, 64, 2)
    start[..., 0] = torch.tensor([-5.0, -9.0, 5.0, 9.0]).view(4, 1, 1)
    match = Runtime(network, "cpu", "fp32", mode)
    with torch.no_grad():
        for initial in (None, start):
            expected = network(*(view.float() for view in views), initial).field
            torch.testing.assert_close(match(*views, initial), expected, rtol=1e-3, atol=5e-3)
    assert match.ran == mode
    assert graphs.made == ([((2, 3, 32, 64), False), ((2, 3, 32, 64), True)] if mode.endswith("-graph") else [])


def test_what_finishes_a_field_is_part_of_the_graph(graphs) -> None:
    match = Runtime(Oracle().knowing(32), mode="eager-graph", finish=lambda field, last: (field.sum(), field + 1))
    field, total, more = match.run(*images())
    assert total == field.sum()
    assert torch.equal(more, field + 1)


def test_a_predictor_matches_by_fused_kernels_with_a_start_or_without(graphs, fused) -> None:
    network = Oracle().knowing(96)
    left, right, _ = pair(32, 96)
    run = Predictor(network, "cpu", check=False)
    first = run(left, right)
    assert (first.relative_position == 7).all()
    run(left, right, initial=first)
    assert network.calls == []
    assert graphs.made == [((1, 3, 32, 96), True)]
    Predictor(network, "cpu", check=False, mode="eager")(left, right)
    assert fused.calls == 2


@pytest.mark.parametrize("pairs", [1, 2])
def test_a_replay_does_not_ask_how_much_memory_is_left(graphs, monkeypatch, pairs) -> None:
    """On a GPU the question takes a good part of a replay's time."""
    left, right, _ = pair(32, 96)
    run = Predictor(Oracle().knowing(96), "cpu", check=False)
    asked = []
    monkeypatch.setattr(memory, "available_bytes", lambda device: asked.append(device) or 1e12)
    for _ in range(5):
        run.match_together([(left, right)] * pairs)
    assert run.runtime.ran == "eager-graph"
    assert len(asked) == PAYS_FROM
    run.runtime.forget()
    run.match_together([(left, right)] * pairs)
    assert len(asked) == PAYS_FROM + 1


def test_a_stream_of_ten_frames_replays_the_graph_for_frames_two_to_ten(graphs, fused, monkeypatch) -> None:
    network = Oracle().knowing(96)
    left, right, _ = pair(32, 96)
    predict = Predictor(network, "cpu", check=False)
    ran = []
    for result in predict.stream([(left, right)] * 10):
        assert (result.relative_position == 7).all()
        ran.append(predict.runtime.ran)
    assert ran == ["fused"] + ["fused-graph"] * 9
    assert graphs.made == [((1, 3, 32, 96), True)]
    assert graphs.replays == [True] * 9
    assert network.calls == []


def test_unknown_mode() -> None:
    with pytest.raises(ma.InputError, match="no mode 'warp'"):
        Runtime(Oracle(), mode="warp")


def test_graphs_are_refused_without_a_gpu() -> None:
    network = ma.create_model(TINY)
    with pytest.raises(ma.InputError, match="needs a GPU"):
        Predictor(network, "cpu", mode="eager-graph", check=False)


def test_a_network_that_cannot_be_fused_says_why() -> None:
    pytest.importorskip("triton")
    from dataclasses import replace

    with pytest.raises(ma.InputError, match="transport estimate"):
        Runtime(ma.create_model(replace(TINY, initial="softmax")), "cpu", mode="fused")
