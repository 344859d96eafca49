"""The fused network computes what the network computes, in Triton's interpreter or on a GPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from matchattention.inference.predictor import Predictor
from matchattention.layers.initial import TransportEstimate
from matchattention.layers.tokens import instance_norm
from matchattention.models import network as network_module
from matchattention.models.registry import NETWORKS
from matchattention.runtime import runtime as runtime_module
from matchattention.runtime.fused import blocks, rows
from matchattention.runtime.fused import network as fused_network
from matchattention.runtime.fused.blocks import FusedStage, pack_position
from matchattention.runtime.fused.network import FusedNetwork, FusedStereoEstimate, why_not_fused
from matchattention.runtime.fused.tiles import EACH, TILES, Tile, tile_of
from matchattention.runtime.kernels import stem
from matchattention.runtime.kernels.stem import instance_norm_gelu
from matchattention.runtime.prepared import prepare
from tests.runtime.networks import DEVICE, FLOW, SMALL, images, lively

SHALLOW = {"encoder_depths": (1, 1, 1, 1), "decoder_depths": (1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({}, (60, 90)),
        ({"windows": ((4, 4), (1, 8), (1, 4), (1, 4)), "similarity": "dot", "gate": False}, (32, 64)),
        ({"compression": 1, "upsampling_border": "zero", "residual_scales": False}, (32, 40)),
        (SHALLOW, (1, 33)),
        (SHALLOW, (33, 20)),
        ({**SHALLOW, "channels": (48, 48, 48, 48)}, (32, 40)),
        ({**SHALLOW, **FLOW}, (60, 90)),
    ],
    ids=["rt", "2d-dot-no-gate", "full-channels", "one-row", "one-column-of-tokens", "three-channels-a-head", "flow"],
)
@torch.no_grad()
def test_equals_the_network(change, size):
    net = lively(replace(SMALL, **change))
    pair = images(*size)
    expected = net(*(image.float() for image in pair)).field
    found = FusedNetwork(net, torch.float32)(*pair)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("tile", [Tile(16, 16, 4, shares=4), Tile(16, 16, 4, apart=True, rows=32, stages=2)])
@torch.no_grad()
def test_any_tile_gives_the_same(monkeypatch, tile):
    stage = FusedStage(list(lively(SMALL).stages[0]), torch.float32).to(DEVICE)
    features = torch.randn(2, 3, 10, 32, device=DEVICE)
    position = pack_position(torch.randn(2, 3, 10, 2, device=DEVICE), torch.randn(2, 3, 10, 4, 2, device=DEVICE))
    expected = stage(features, position)
    for module in (blocks, rows):
        monkeypatch.setattr(module, "tile_of", lambda *asked: tile)
    for found, usual in zip(stage(features, position), expected):
        torch.testing.assert_close(found, usual, rtol=1e-4, atol=1e-4)


def test_small_maps_share_their_columns_and_large_ones_do_not():
    assert tile_of("cross", 256, 1024, 1024).shares == 4
    assert tile_of("cross", 256, 1024, 64 * 1024).shares == 1
    assert tile_of("contract", 256, 192, 1024).shares == 1
    assert tile_of("project", 256, 192, 1024).shares == 3  # no program without columns


def test_each_tile_of_columns_may_have_a_program(monkeypatch):
    monkeypatch.setitem(TILES["project"], 256, Tile(64, 128, 8, shares=EACH))
    assert {tile_of("project", 200, 1000, tokens).shares for tokens in (64, 10**6)} == {8}
    assert tile_of("project", 256, 24, 64)[:4] == (64, 32, 8, 1)


@torch.no_grad()
def test_eps_comes_from_the_module():
    net = lively(SMALL)
    for module in net.modules():
        if hasattr(module, "eps"):
            module.eps = 0.3
    pair = images(32, 40)
    expected = net(*(image.float() for image in pair)).field
    torch.testing.assert_close(FusedNetwork(net, torch.float32)(*pair), expected, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("change", [{}, FLOW], ids=["stereo", "flow"])
@torch.no_grad()
def test_a_batch_starts_from_a_field(change):
    net = lively(replace(SMALL, **SHALLOW, **change))
    pair = [image.repeat(2, 1, 1, 1) for image in images(32, 40)]
    start = torch.randn(4, 32, 40, 2, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(2)) * 4
    if not change:
        start[..., 1] = 0
    expected = net(*(image.float() for image in pair), start)
    field, last = FusedNetwork(net, torch.float32).matched(*pair, start)
    torch.testing.assert_close(field, expected.field, rtol=1e-4, atol=2e-3)
    for found, wanted in zip(last, expected.last_stage):  # what a confidence head reads
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-3)


@torch.no_grad()
def test_large_images_start_from_half_resolution(monkeypatch):
    for module in (network_module, fused_network):
        monkeypatch.setattr(module, "LARGE", 64)
    net = lively(replace(SMALL, **SHALLOW))
    pair = images(32, 96)
    expected = net(*(image.float() for image in pair)).field
    torch.testing.assert_close(FusedNetwork(net, torch.float32)(*pair), expected, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("width", [5, 16, 19])
@torch.no_grad()
def test_estimate(width):
    torch.manual_seed(3)
    estimate = TransportEstimate(32, 4, 4, stereo=True, layers=0, iterations=5).to(DEVICE)
    estimate.bin_score.data += 0.3
    tokens = torch.randn(4, 2, width, 32, device=DEVICE) * 3
    found = FusedStereoEstimate(estimate, 4, torch.float32)(tokens)
    torch.testing.assert_close(found[..., :2], estimate(tokens).position, rtol=1e-4, atol=1e-4)
    assert (found[..., 2:] == 0).all()


@pytest.mark.parametrize("most_chunks", [128, 3, 1])
@torch.no_grad()
def test_instance_norm_puts_its_parts_together(monkeypatch, most_chunks):
    monkeypatch.setattr(stem, "MOST_CHUNKS", most_chunks)
    tokens = torch.randn(2, 70, 61, 8, device=DEVICE) * 3 + 5
    expected = torch.nn.functional.gelu(instance_norm(tokens))
    torch.testing.assert_close(instance_norm_gelu(tokens), expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_predictor_with_a_fused_network_equals_one_without(monkeypatch):
    net = lively(replace(SMALL, **SHALLOW)).cpu()
    left, right = (image[0].permute(1, 2, 0).cpu().numpy() for image in images(30, 60))
    expected = Predictor(net, DEVICE, "fp32", mode="eager", check=False)(left, right)
    monkeypatch.setattr(runtime_module, "fuses_well", lambda model, device, dtype: True)
    monkeypatch.setattr(runtime_module, "_has_graphs", lambda device: True)
    predict = Predictor(net, DEVICE, "fp32", check=False)
    found = predict(left, right)
    assert predict.runtime.ran == "fused"
    np.testing.assert_allclose(found.relative_position, expected.relative_position, rtol=1e-4, atol=2e-3)
    assert (found.occlusion == expected.occlusion).mean() > 0.99


def test_says_which_networks_it_is_for():
    assert why_not_fused(NETWORKS["rt"].config) is None
    assert why_not_fused(NETWORKS["rt-flow"].config) is None
    words = {"xl": "256", "rt-swin": "MatchAttention", "released-t": "transport"}
    for name, word in words.items():
        reason = why_not_fused(NETWORKS[name].config)
        assert reason is not None
        assert word in reason


@pytest.mark.parametrize("wide", [16, 10**6])
@torch.no_grad()
def test_half_precision_rounds_no_worse_than_the_plain_network(monkeypatch, wide):
    """Features of fp32 between the layers of a scale, or of fp16."""
    monkeypatch.setattr(rows, "WIDE", wide)
    net = lively(SMALL)
    pair = images(64, 96)
    expected = net(*(image.float() for image in pair)).field
    plain = prepare(net, torch.device("cpu"), torch.float16).to(DEVICE)
    errors = [
        (found - expected).abs().mean()
        for found in (plain(*(image.float() for image in pair)).field, FusedNetwork(net, torch.float16)(*pair))
    ]
    assert errors[1] < 1.5 * errors[0] + 1e-3


@torch.no_grad()
def test_stages_take_and_give_features_in_the_matrices_dtype(monkeypatch):
    monkeypatch.setattr(rows, "WIDE", 16)
    net = FusedNetwork(lively(SMALL), torch.float16)
    encoded = net.encoder(*images(32, 64))
    assert {tokens.dtype for tokens in encoded} == {torch.float16}
    features = net.context(encoded[-1])
    assert features.dtype == torch.float32
    features, position = net.stages[0](features, net.initial(features))
    assert (features.dtype, position.dtype) == (torch.float16, torch.float32)
