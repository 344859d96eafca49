"""Encoder and global attention against plain PyTorch in its own layout, channels first."""

import pytest
import torch
import torch.nn.functional as F

from matchattention.layers.encoder import Encoder
from matchattention.layers.global_attention import GlobalAttentionLayer


def randomised(module):
    """The module in fp64 with no weight left at its initial zero or one."""
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return module


def first(tokens):
    return tokens.movedim(-1, 1)


def norm(image, weight, eps):
    return F.layer_norm(image.movedim(1, -1), weight.shape, weight, None, eps).movedim(-1, 1)


def linear(image, layer):
    return F.conv2d(image, layer.weight[..., None, None], layer.bias)


def encoder_block(block, image):
    hidden = F.gelu(linear(norm(image, block.norm1.weight, 1e-6), block.mixer.expand))
    hidden = F.conv2d(hidden, block.mixer.depthwise.weight, padding=1, groups=hidden.shape[1])
    scales = [getattr(scale, "scale", torch.ones(image.shape[1])) for scale in (block.scale1, block.scale2)]
    image = image * scales[0].view(-1, 1, 1) + linear(hidden, block.mixer.contract)
    hidden = F.gelu(linear(norm(image, block.norm2.weight, 1e-6), block.mlp.expand))
    return image * scales[1].view(-1, 1, 1) + linear(hidden, block.mlp.contract)


@pytest.mark.parametrize("residual_scales", [True, False], ids=["scaled", "unscaled"])
def test_encoder(residual_scales):
    torch.manual_seed(0)
    encoder = randomised(Encoder((4, 6, 8, 10), (1, 1, 2, 1), residual_scales))
    image = torch.rand(2, 3, 64, 96, dtype=torch.float64) * 2 - 1
    found = encoder(image)
    for conv in (encoder.stem.first, encoder.stem.second):
        image = F.gelu(F.instance_norm(F.conv2d(image, conv.weight, conv.bias, stride=2, padding=1), eps=1e-5))
    for stage, tokens in enumerate(found):
        if stage:
            down = encoder.downsamplings[stage - 1]
            image = F.conv2d(norm(image, down.norm.weight, 1e-6), down.conv.weight, down.conv.bias, stride=2, padding=1)
        for block in encoder.stages[stage]:
            assert hasattr(block.scale1, "scale") == (residual_scales and stage >= 2)
            image = encoder_block(block, image)
        torch.testing.assert_close(first(tokens), image)
    assert [tuple(tokens.shape[1:]) for tokens in found] == [(16, 24, 4), (8, 12, 6), (4, 6, 8), (2, 3, 10)]


def attended(layer, tokens, source, heads):
    """Multi-head attention token by token: (N, C) looks into (M, C)."""
    q, kv = tokens @ layer.q.weight.T, source @ layer.kv.weight.T
    inner = q.shape[-1]
    size = inner // heads
    parts = []
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        scores = q[:, part] @ kv[:, :inner][:, part].T / size**0.5
        parts.append(scores.softmax(-1) @ kv[:, inner:][:, part])
    return torch.cat(parts, -1) @ layer.out.weight.T


def test_global_attention_looks_into_its_own_and_then_into_the_other_view():
    torch.manual_seed(0)
    channels, heads, height, width = 8, 2, 3, 4
    layer = randomised(GlobalAttentionLayer(channels, heads, compression=2))
    tokens = torch.randn(2, height, width, channels, dtype=torch.float64)
    found = layer(tokens)

    def normed(values, weight):
        return F.layer_norm(values, weight.shape, weight, None, 1e-5)

    flat = tokens.flatten(1, 2)
    own = normed(flat, layer.norm1.weight)
    flat = flat + torch.stack([attended(layer.self_attention, own[i], own[i], heads) for i in (0, 1)])
    own = normed(flat, layer.norm2.weight)
    flat = flat + torch.stack([attended(layer.cross_attention, own[i], own[1 - i], heads) for i in (0, 1)])
    expected = flat.unflatten(1, (height, width))
    expected = expected + layer.feedforward(normed(expected, layer.norm3.weight))
    torch.testing.assert_close(found, expected)
