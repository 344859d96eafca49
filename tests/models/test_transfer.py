"""A flow network that begins with stereo weights."""

from dataclasses import replace

import pytest
import torch

from matchattention import create_model
from matchattention.errors import InputError
from matchattention.models.registry import NETWORKS
from matchattention.models.transfer import stereo_to_flow

SMALL = dict(channels=(16, 32, 48, 64), encoder_depths=(1, 1, 1, 1), decoder_depths=(2, 1, 1, 1))
STEREO = replace(NETWORKS["rt"].config, **SMALL)
FLOW = replace(NETWORKS["rt-flow"].config, **SMALL)


def started():
    torch.manual_seed(0)
    stereo = create_model(STEREO)
    for parameter in stereo.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    flow = create_model(FLOW)
    flow.load_state_dict(stereo_to_flow(stereo.state_dict(), STEREO, FLOW))
    return stereo.state_dict(), flow


def test_everything_of_one_shape_is_taken_and_y_stands_still():
    stereo, flow = started()
    assert flow.state_dict().keys() == stereo.keys()
    changed = {name for name, value in flow.state_dict().items() if not torch.equal(value, stereo[name])}
    assert {name.split(".", 3)[-1] for name in changed} == {"beta", "first.out.weight", "cross.out.weight"}
    for name, value in flow.state_dict().items():
        width = dict(zip("0123", STEREO.channels[::-1])).get(name.split(".")[1] if name.startswith("stages") else "")
        if name.endswith("beta"):
            assert value[1] == value[0] == stereo[name][0]
        elif width and name.endswith("first.out.weight"):
            assert not value[width + 1 :: 2].any()
            assert torch.equal(value[width::2], stereo[name][width::2])
            assert torch.equal(value[:width], stereo[name][:width])
        elif width and name.endswith("cross.out.weight"):
            inner = width // 4
            assert not value[width + 1].any()
            kept = [row for row in range(width + 2) if row != width + 1]
            assert torch.equal(value[kept][:, :inner], stereo[name][kept][:, :inner])
            keys = value[kept][:, inner:].unflatten(1, (4, 4, 4))  # heads, rows, columns
            expected = stereo[name][kept][:, inner:].unflatten(1, (4, 1, 4)).expand_as(keys)
            assert torch.equal(keys, expected)


def test_the_network_runs_and_learns_to_move_y():
    _, flow = started()
    images = [torch.rand(1, 3, 64, 96, generator=torch.Generator().manual_seed(i)) * 255 for i in range(2)]
    field = flow(*images).field
    assert torch.isfinite(field).all()
    field.sum().backward()
    width = STEREO.channels[0]
    assert flow.stages[3][0].cross.out.weight.grad[width + 1].any()


def test_other_networks_are_refused():
    stereo, _ = started()
    with pytest.raises(InputError, match="same network"):
        stereo_to_flow(stereo, STEREO, replace(FLOW, heads=2))
    with pytest.raises(InputError, match="same network"):
        stereo_to_flow(stereo, STEREO, STEREO)
