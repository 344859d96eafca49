"""What a batch costs the host of a GPU: no question to the device, and few launches."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from matchattention.synth.sensor import kernels, pipeline
from matchattention.synth.stream import render
from matchattention.synth.stream.scene_stream import RENDER_AT_ONCE, SceneStream
from matchattention.synth.world.config import PRESETS

# These wait for the device because the host needs a value or a shape from it.
QUESTIONS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim", "_unique2"}
MOST_LAUNCHES = {"mixed": 420, "flow": 900}  # flow renders and blurs several moments of an exposure, all at once


class Recorder(TorchDispatchMode):
    """Counts operations, and apart from them those that do work on the device."""

    def __init__(self):
        super().__init__()
        self.operations = Counter()
        self.launches = 0

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        name = operation.overloadpacket.__name__
        self.operations[name] += 1
        if name == "index" and any(i is not None and i.dtype == torch.bool for i in arguments[1]):
            self.operations["nonzero"] += 1
        result = operation(*arguments, **(named or {}))
        self.launches += not (operation.is_view or name.startswith(("empty", "new_empty", "_unsafe_view")))
        return result


@pytest.fixture
def like_a_gpu(monkeypatch):
    """Every kernel of the GPU path is one operation here."""
    first_slot = torch.zeros((), dtype=torch.int32)

    def cast(tables, cameras, size, offsets, shift=None):
        depth = torch.ones(*tables.rays.shape[:2], len(offsets), *size)
        return depth, first_slot.expand(depth.shape)

    def shade(tables, solids, cameras, offsets, depth, hit):
        return torch.ones(*depth.shape[:2], 3, *depth.shape[-2:])

    monkeypatch.setattr(render, "cast", cast)
    monkeypatch.setattr(render, "shade", shade)
    monkeypatch.setattr(pipeline, "FUSED_DEVICES", ("cpu",))
    for name in ("expose", "develop", "sharpen"):
        monkeypatch.setattr(kernels, name, lambda images, *others: images.clone())


@pytest.mark.parametrize("preset", ["mixed", "flow"])
def test_a_batch_asks_nothing_and_launches_little(preset, like_a_gpu):
    stream = SceneStream(PRESETS[preset], (16, 32), RENDER_AT_ONCE, 1, "cpu")
    scenes = stream._scenes(range(RENDER_AT_ONCE))
    stream._scenes = lambda indices: scenes
    stream.next()  # makes the constants that are kept
    stream.state = 0
    with Recorder() as recorder:
        batch = stream.next()
    assert batch.image0.shape == (RENDER_AT_ONCE, 3, 16, 32)
    assert not QUESTIONS & recorder.operations.keys()
    assert 100 < recorder.launches < MOST_LAUNCHES[preset]
