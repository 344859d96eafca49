"""The comparison that decides whether a file is kept: what is right passes, whatever is broken is seen."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.errors import InputError
from matchattention.exporting import windows
from matchattention.exporting.check import compare, require_agreement
from matchattention.exporting.network import ExportedNetwork


@pytest.fixture(scope="module")
def rt():
    return ma.load("rt").float().eval()


def run_by(network):
    """The exported network in place of a file."""

    def runtime(first, second):
        with torch.inference_mode():
            return tuple(field.numpy() for field in network(torch.from_numpy(first), torch.from_numpy(second)))

    return runtime


def judge(model, runtime, precision="fp32"):
    require_agreement(compare(model, runtime), precision, "rt.onnx")


def test_one_weight_of_ten_million_is_seen(rt):
    judge(rt, run_by(ExportedNetwork(rt)))
    broken = copy.deepcopy(rt)
    with torch.no_grad():
        broken.stages[3][0].first.out.weight.view(-1)[0] += 0.2
    with pytest.raises(InputError, match=r"rt\.onnx was not written: at 192x320 it differs from PyTorch"):
        judge(rt, run_by(ExportedNetwork(broken)))


def test_positions_in_half_precision_are_seen(rt, monkeypatch):
    plain = windows.Map.place

    def halved(self, state, channel, heads, own):
        state, x = state.clone(), slice(channel, channel + 2 * heads, 2)
        state[..., x] = (self.x + state[..., x]).half().float() - self.x
        return plain(self, state, channel, heads, own)

    monkeypatch.setattr(windows.Map, "place", halved)
    with pytest.raises(InputError, match=r"at 64x2048 .* more than the 0\.05 px allowed for fp16"):
        judge(rt, run_by(ExportedNetwork(rt)), "fp16")


def test_a_batch_that_repeats_its_first_pair_is_seen(tiny):
    network = run_by(ExportedNetwork(tiny))

    def runtime(first, second):
        return tuple(np.repeat(field[:1], len(first), 0) for field in network(first, second))

    with pytest.raises(InputError, match="at 192x320"):
        judge(tiny, runtime)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_seen(tiny, value):
    network = run_by(ExportedNetwork(tiny))

    def runtime(first, second):
        fields = network(first, second)
        fields[0][0, 0, 0] = value
        return fields

    with pytest.raises(InputError, match="differs from PyTorch"):
        judge(tiny, runtime)
