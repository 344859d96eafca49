"""Every registered network: the paper's digits, forward, backward, saving, compiling."""

from dataclasses import replace

import pytest
import torch
import torch._dynamo.testing

from matchattention import create_model, list_models, match_attention
from matchattention.errors import InputError
from matchattention.models import checkpoint
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS

CLASSES = 1000  # of the classifier the paper's counts include

# Where the paper's widths would not fit a test's time: the same network, narrower and shallower.
SMALL = dict(channels=(16, 32, 48, 64), encoder_depths=(1, 1, 1, 1), decoder_depths=(2, 1, 1, 1))


def small(name: str) -> MatchNetwork:
    torch.manual_seed(0)
    network = create_model(replace(NETWORKS[name].config, **SMALL))
    for stage in network.stages:  # positions start still; let them move, so that a test sees them
        for block in stage:
            torch.nn.init.normal_(block.first.out.weight, std=0.05)
            torch.nn.init.normal_(block.cross.out.weight, std=0.05)
    return network


def images(height=64, width=160, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(batch, 3, height, width, generator=generator) * 255 for _ in range(2)]


def count(config: NetworkConfig) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in MatchNetwork(config).parameters())


@pytest.mark.parametrize("name", [name for name, entry in NETWORKS.items() if entry.paper_parameters])
def test_parameters_meet_the_paper(name):
    entry = NETWORKS[name]
    head = (entry.config.channels[-1] + 1) * CLASSES
    digits = 1 if entry.paper_parameters > 100 else 2
    assert round((count(entry.config) + head) / 1e6, digits) == entry.paper_parameters


@pytest.mark.parametrize(("name", "millions"), [("t", 8.7845), ("s", 25.2312), ("b", 75.4484)])
def test_parameters_of_released_networks(name, millions):
    config = NETWORKS[f"released-{name}"].config
    unused_scales = sum(2 * config.encoder_depths[stage] * config.channels[stage] for stage in (2, 3))
    head = (config.channels[-1] + 1) * CLASSES
    assert round((count(config) + unused_scales + head) / 1e6, 4) == millions


@pytest.mark.parametrize("name", NETWORKS)
def test_forward_backward_save_load(name, tmp_path):
    network = small(name)
    image0, image1 = images()
    matches = network(image0, image1)
    assert matches.field.shape == (2, 64, 160, 2)
    assert matches.field.dtype == torch.float32
    assert {step.scale for step in matches.steps} == {32, 16, 8, 4}
    loss = matches.field.abs().mean() + sum(step.position.abs().mean() for step in matches.steps)
    if matches.initial.log_matching is not None:
        loss = loss - matches.initial.log_matching[..., 0, 0].mean()
    loss.backward()
    unused = [n for n, p in network.named_parameters() if p.grad is None]
    assert not unused
    assert all(p.grad.isfinite().all() for p in network.parameters())
    assert matches.field.isfinite().all()
    if NETWORKS[name].config.task == "stereo":
        assert (matches.field[..., 1] == 0).all()

    path = tmp_path / "network.safetensors"
    checkpoint.save(network, path, network.config, {"licence": "Apache-2.0"})
    again = checkpoint.load(path)
    assert again.config == network.config
    assert checkpoint.read_header(path)[1] == {"licence": "Apache-2.0"}
    with torch.no_grad():
        assert torch.equal(again(image0, image1).field, network.eval()(image0, image1).field)


def test_fields_right_after_an_upsampling_are_supervised_like_self_attention():
    network = small("rt").eval()
    with torch.no_grad():
        steps = network(*images()).steps
    blocks = [("self", "cross")] * 2, [("self", "cross")], [("self", "cross")], [("self", "cross")]
    kinds = [(32, kind) for pair in blocks[0] for kind in pair]
    for scale, stage in zip((16, 8, 4), blocks[1:]):
        kinds += [(scale, "self"), *((scale, kind) for pair in stage for kind in pair)]
    assert [(step.scale, step.kind) for step in steps] == kinds


TINY = dict(channels=(16, 16, 16, 16), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1))


@pytest.mark.parametrize("name", NETWORKS)
def test_compiles_whole_and_once(name):
    """fullgraph, and no second compilation for a second call of the same shape.

    The traced graph is run as it is, without inductor's code generation, which would take minutes for all
    networks on a CPU; inductor itself runs in `test_compile_backend_agrees` and on the GPU.
    """
    torch.manual_seed(0)
    network = create_model(replace(NETWORKS[name].config, **TINY)).eval()
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    compiled = torch.compile(network, backend=counter, fullgraph=True, dynamic=False)
    image0, image1 = images(32, 64)
    with torch.no_grad():
        expected = network(image0, image1).field
        for _ in range(2):
            torch.testing.assert_close(compiled(image0, image1).field, expected, rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["rt", "rt-2d", "rt-flow", "rt-swin"])
def test_swapping_the_views_swaps_the_outputs(name):
    """From the initial field on nothing knows which view is which; the correlation's two projections do."""
    network = small(name).eval()
    image0, image1 = images()
    field = torch.randn(2, 64, 160, 2) * 8
    with torch.no_grad():
        straight = network(image0, image1, field).field
        swapped = network(image1, image0, field.roll(1, 0)).field
    assert straight.sub(field).abs().max() > 1e-3
    torch.testing.assert_close(straight.roll(1, 0), swapped, rtol=0, atol=1e-4)


def test_a_true_shift_stays_put_in_an_untrained_operator():
    """Identical texture, shifted: with the true offset every query finds itself, so L1 attention peaks there."""
    torch.manual_seed(0)
    shift, width = 3, 24
    right = torch.randn(1, 6, width, 2, 8) * 50
    left = right.roll(shift, 2)  # left[x] = right[x - shift]
    position = torch.zeros(1, 6, width, 1, 2)
    position[..., 0] = -shift
    for _ in range(4):
        out, weights = match_attention(left, right, right, position, (1, 4))
        centre = weights.argmax(-1)[:, :, shift + 1 : -2]
        assert (centre == 1).all()  # the window's centre, offset zero
        inner = slice(shift + 1, width - 2)
        torch.testing.assert_close(out[:, :, inner], left[:, :, inner], rtol=0, atol=1e-3)
        offset = (weights * (torch.arange(4) - 1)).sum(-1).mean(-1)  # what the weights would add
        position[:, :, inner, 0, 0] += offset[:, :, inner]
    torch.testing.assert_close(position[:, :, inner, 0, 0], torch.full_like(position[:, :, inner, 0, 0], -shift))


def test_an_untrained_network_keeps_an_injected_field():
    """Position rows start at zero: an untrained network returns the field it was given, where it is constant."""
    torch.manual_seed(0)
    network = create_model(replace(NETWORKS["rt"].config, **SMALL)).eval()
    right = torch.rand(1, 3, 64, 160) * 255
    left = right.roll(16, 3)
    field = torch.zeros(2, 64, 160, 2)
    field[0, ..., 0], field[1, ..., 0] = -16, 16
    with torch.no_grad():
        found = network(left, right, field)
    torch.testing.assert_close(found.field, field, rtol=0, atol=1e-4)
    for step in found.steps:
        x = step.position[0, ..., 0]
        torch.testing.assert_close(x, torch.full_like(x, -16 / step.scale))


@pytest.mark.parametrize("size", [(1, 1), (1, 40), (33, 5), (50, 70)])
def test_any_size(size):
    network = small("rt").eval()
    with torch.no_grad():
        field = network(*images(*size)).field
    assert field.shape == (2, *size, 2)
    assert field.isfinite().all()


def test_half_resolution_start_above_2k(monkeypatch):
    from matchattention.models import network as module

    monkeypatch.setattr(module, "LARGE", 128)
    network = small("rt").eval()
    image0, image1 = images(64, 150)
    with torch.no_grad():
        matches = network(image0, image1)
        start = module.coarse_field(lambda *halves: network(*halves).field, image0, image1)
        explicit = network(image0, image1, start)
    assert start.shape == (2, 64, 150, 2)
    assert matches.initial.log_matching is None
    assert torch.equal(matches.field, explicit.field)


def test_images_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="one size"):
        small("rt")(torch.zeros(1, 3, 32, 32), torch.zeros(1, 3, 32, 64))


def test_positions_stay_fp32_in_half_precision():
    """bf16 features cost no more than a few times what rounding the weights alone costs."""
    network = small("rt").eval()
    image0, image1 = images()
    with torch.no_grad():
        exact = network(image0, image1).field
        half = network.to(torch.bfloat16)(image0.bfloat16(), image1.bfloat16())
        rounded = network.float()(image0.bfloat16().float(), image1.bfloat16().float()).field
    assert half.field.dtype == torch.float32
    assert all(step.position.dtype == torch.float32 for step in half.steps)
    assert half.field.sub(exact).abs().mean() < 3 * rounded.sub(exact).abs().mean()


def test_unknown_names_and_configs_are_refused():
    with pytest.raises(InputError, match="There is no network 'rx'"):
        create_model("rx")
    with pytest.raises(InputError, match="multiple of heads"):
        NetworkConfig(channels=(30, 64, 128, 256))
    assert set(list_models()) == set(NETWORKS)
