"""The exported formulation against the network itself: every variant, every size."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from matchattention.errors import InputError
from matchattention.exporting.network import ExportedNetwork
from matchattention.models.network import at_tokens
from tests.exporting.conftest import TINY, lively

TWO_D = ((4, 4),) * 4
VARIANTS = {
    "stereo": TINY,
    "dot": replace(TINY, similarity="dot"),
    "no gate": replace(TINY, gate=False),
    "self-blind": replace(TINY, self_sees_cross=False),
    "double cross": replace(TINY, first_attention="cross"),
    "2d": replace(TINY, windows=TWO_D),
    "flow": replace(TINY, task="flow", windows=TWO_D),
    "released": replace(
        TINY,
        windows=((6, 6), (6, 6), (4, 4), (4, 4)),
        compression=1,
        initial="softmax",
        initial_layers=0,
        residual_scales=False,
        self_mask=True,
        upsampling_border="zero",
    ),
}


def images(height, width, batch=1):
    generator = torch.Generator().manual_seed(height + width)
    return [torch.rand(batch, 3, height, width, generator=generator) * 255 for _ in range(2)]


def as_field(outputs, task):
    """Outputs as (2N, H, W[, 2]) beside `Matches.field`."""
    return torch.cat((-outputs[0], outputs[1])) if task == "stereo" else torch.cat(outputs).permute(0, 2, 3, 1)


def expected(model, first, second, initial=None):
    field = model(first, second, initial).field
    if model.config.task == "flow":
        return field
    left, right = field[..., 0].chunk(2)
    return torch.cat((left.clamp(max=0), right.clamp(min=0)))


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("size", [(96, 160), (32, 64)], ids=str)
def test_twin(name, size):
    model = lively(VARIANTS[name])
    pair = images(*size, batch=2)
    with torch.inference_mode():
        found = ExportedNetwork(model)(*pair)
        apart = (as_field(found, model.config.task) - expected(model, *pair)).abs()
    # A match that hangs between two candidates may fall to either by rounding; nearly all must be the same.
    assert apart.mean() < 2e-3
    assert apart.flatten().kthvalue(int(0.99 * apart.numel())).values < 2e-3


def test_start(tiny):
    pair = images(64, 96)
    start = torch.rand(2, 64, 96, 2) * torch.tensor([20.0, 0.0]) - torch.tensor([10.0, 0.0])
    with torch.inference_mode():
        found = ExportedNetwork(tiny)(*pair, at_tokens(start))
        assert_close(as_field(found, "stereo"), expected(tiny, *pair, start), rtol=0, atol=2e-3)
        own = ExportedNetwork(tiny)(*pair)
        nothing = ExportedNetwork(tiny)(*pair, torch.full((2, 2, 3, 2), float("nan")))
        assert_close(nothing, own, rtol=0, atol=0)


def test_half_precision_keeps_positions(tiny):
    pair = images(64, 2048)
    with torch.inference_mode():
        half = as_field(ExportedNetwork(tiny, torch.float16)(*pair), "stereo")
        apart = (half - expected(tiny, *pair)).abs()
    assert half.dtype == torch.float32
    assert apart.median() < 0.25  # fp16 positions would step by 0.5 beyond column 512 of tokens


def test_other_families_are_refused():
    with pytest.raises(InputError, match="swin"):
        ExportedNetwork(lively(replace(TINY, attention="swin")))
