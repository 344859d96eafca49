"""Where a capture happens, on a CUDA that only keeps account: its GPU's own streams, and back to the caller's after."""

import contextlib

import pytest
import torch

from matchattention.runtime import graph
from matchattention.runtime.graph import capture


class FakeCuda:
    """The current GPU, and every GPU's current stream: a name."""

    def __init__(self, monkeypatch) -> None:
        self.device = 0
        self.made = 0
        self.current = {0: "default of 0", 1: "default of 1"}
        self.recorded: list[str] = []
        self.fails = False
        for name in ("Stream", "current_stream", "current_device", "stream", "graph"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
        graph._streams.cache_clear()

    def Stream(self) -> "Stream":
        self.made += 1
        return Stream(f"{self.made} of {self.device}")

    def current_stream(self) -> "Stream":
        return Stream(self.current[self.device])

    def current_device(self) -> int:
        return self.device

    @contextlib.contextmanager
    def stream(self, stream):
        before = self.current[self.device]
        self.current[self.device] = stream
        try:
            yield
        finally:
            self.current[self.device] = before

    @contextlib.contextmanager
    def graph(self, made, stream=None, capture_error_mode="global"):
        assert capture_error_mode == "thread_local"
        self.current[self.device] = stream  # left behind by a capture that fails, as PyTorch leaves it
        yield
        if self.fails:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.recorded.append(stream)


class Stream(str):
    def wait_stream(self, other) -> None:
        pass


@pytest.fixture
def cuda(monkeypatch):
    yield FakeCuda(monkeypatch)
    graph._streams.cache_clear()


def test_every_gpu_captures_on_a_stream_of_its_own_and_keeps_to_it(cuda) -> None:
    for device in (0, 1, 0, 1):
        cuda.device = device
        ran_on = []
        _, result = capture(lambda: ran_on.append(cuda.current_stream()) or 7)  # noqa: B023
        assert result == 7
        assert all(name.endswith(f"of {device}") for name in ran_on)
        assert len(ran_on) == graph.WARM_UPS + 1
        assert ran_on[-1] not in ran_on[:-1]  # a workspace that the graph uses is made in the graph's memory
    assert cuda.made == 4
    assert [name[-1] for name in cuda.recorded] == ["0", "1", "0", "1"]


def test_a_capture_that_fails_leads_back_to_the_callers_stream(cuda) -> None:
    cuda.fails = True
    with pytest.raises(RuntimeError, match="during capture"):
        capture(lambda: None)
    assert cuda.current == {0: "default of 0", 1: "default of 1"}
