"""A MATBlock against the paper's formulas, written out once more in numpy's order and with loops over heads."""

import pytest
import torch
import torch.nn.functional as F

from matchattention.layers.block import BlockConfig, MATBlock
from matchattention.ops.match_attention.reference import match_attention_reference

HEADS, CHANNELS, SIZE = 2, 8, (4, 2, 5, 9)  # two pairs: views 0 and 1 of the batch belong to views 2 and 3
CONFIG = BlockConfig(
    channels=CHANNELS, heads=HEADS, compression=2, window=(1, 4), similarity="l1", attention="match",
    gate=True, self_sees_cross=True, self_mask=False, keep_y=False, depth=0,
)  # fmt: skip


def block_and_triple(config: BlockConfig, first: str = "self"):
    """A block none of whose weights is zero or one, and tokens, cross and self positions."""
    torch.manual_seed(0)
    block = MATBlock(config, first).double()
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    views, _, height, width = SIZE
    features = torch.randn(views, height, width, config.channels, dtype=torch.float64)
    cross = 2 * torch.randn(views, height, width, 2, dtype=torch.float64)
    looking = torch.randn(views, height, width, config.heads, 2, dtype=torch.float64)
    return block, features, cross, looking


def normed(tokens, weight):
    centred = tokens - tokens.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def heads_of(tokens):
    return torch.stack(tokens.split(tokens.shape[-1] // HEADS, -1), -2)


def other_view(tokens):
    return torch.stack([tokens[2], tokens[3], tokens[0], tokens[1]])


def expected_self(layer, features, cross, looking, beta, config):
    parts = [features, cross * beta] if config.self_sees_cross else [features]
    tokens = normed(torch.cat([*parts, looking[..., 0, :], looking[..., 1, :]], -1), layer.norm.weight)
    inner = config.channels // config.compression
    q, k, v = (heads_of(tokens @ layer.qkv.weight[i * inner : (i + 1) * inner].T) for i in range(3))
    attended, _ = match_attention_reference(q, k, v, looking, config.window, config.similarity)
    update = torch.cat([attended[..., 0, :], attended[..., 1, :]], -1) @ layer.out.weight.T
    features, update = features + update[..., :CHANNELS], update[..., CHANNELS:]
    if config.self_sees_cross:
        cross, update = cross + update[..., :2] / beta, update[..., 2:]
    return features, cross, looking + torch.stack([update[..., :2], update[..., 2:]], -2)


def expected_cross(layer, features, cross, beta, config):
    tokens = normed(torch.cat([features, cross * beta], -1), layer.norm.weight)
    inner = config.channels // config.compression
    q, k, v = (tokens @ layer.qkvg.weight[i * inner : (i + 1) * inner].T for i in range(3))
    k, v = other_view(k), other_view(v)
    attended, weights = match_attention_reference(
        heads_of(q), heads_of(k), heads_of(v), cross[..., None, :], config.window, config.similarity
    )
    attended = torch.cat([attended[..., 0, :], attended[..., 1, :]], -1)
    if config.gate:
        gate = tokens @ layer.qkvg.weight[3 * inner :].T
        attended = attended * gate * torch.sigmoid(gate)
    update = torch.cat([attended, weights[..., 0, :], weights[..., 1, :]], -1) @ layer.out.weight.T
    return features + update[..., :CHANNELS], cross + update[..., CHANNELS:] / beta


def expected_feedforward(block, features):
    layer = block.feedforward
    hidden = normed(features, block.norm.weight) @ layer.expand.weight.T + layer.expand.bias
    gate, value = hidden[..., : 2 * CHANNELS], hidden[..., 2 * CHANNELS :]
    kernel, bias = layer.depthwise.weight, layer.depthwise.bias
    gate = F.conv2d(gate.permute(0, 3, 1, 2), kernel, bias, padding=1, groups=2 * CHANNELS).permute(0, 2, 3, 1)
    return features + (F.gelu(gate) * value) @ layer.contract.weight.T + layer.contract.bias


@pytest.mark.parametrize(
    "changes",
    [{}, {"window": (4, 4), "keep_y": True}, {"gate": False}, {"self_sees_cross": False}, {"similarity": "dot"}],
    ids=["stereo", "flow", "no gate", "self alone", "dot"],
)
def test_a_block_follows_the_formulas(changes):
    config = CONFIG._replace(**changes)
    block, features, cross, looking = block_and_triple(config)
    found = block(features, cross, looking)
    keep = torch.tensor([1.0, 1.0 if config.keep_y else 0.0], dtype=torch.float64)
    features, after_self, looking = expected_self(block.first, features, cross, looking, block.beta, config)
    after_self = after_self * keep
    features, after_cross = expected_cross(block.cross, features, after_self, block.beta, config)
    torch.testing.assert_close(found.after_self, after_self)
    torch.testing.assert_close(found.after_cross, after_cross * keep)
    torch.testing.assert_close(found.self_position, looking)
    torch.testing.assert_close(found.features, expected_feedforward(block, features))


def test_double_cross_looks_twice_into_the_other_view():
    block, features, cross, looking = block_and_triple(CONFIG, first="cross")
    found = block(features, cross, looking)
    row = torch.tensor([1.0, 0.0], dtype=torch.float64)
    features, after_first = expected_cross(block.first, features, cross, block.beta, CONFIG)
    features, after_second = expected_cross(block.cross, features, after_first * row, block.beta, CONFIG)
    torch.testing.assert_close(found.after_self, after_first * row)
    torch.testing.assert_close(found.after_cross, after_second * row)
    assert found.self_position is looking


def test_the_released_mask_marks_tokens_whose_views_agree_within_two_tokens():
    """Constant fields: view 0 looks 1 token left; view 1 answers with +1 (agrees), +2.9 (1.9 apart) or +3.1."""
    config = CONFIG._replace(self_mask=True, keep_y=True)
    seen = []
    for answer in (1.0, 2.9, 3.1):
        block, features, cross, looking = block_and_triple(config)
        block.first.qkv.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][..., -1]))
        cross[:2], cross[2:] = torch.tensor([-1.0, 0.0]), torch.tensor([answer, 0.0])
        block(features, cross, looking)
    assert [bool(mask[0, 2, 4]) for mask in seen] == [True, True, False]


def test_a_new_block_moves_no_position():
    block = MATBlock(CONFIG)
    assert block.beta.tolist() == pytest.approx([0.1, 0.1])
    assert not block.first.out.weight[CHANNELS:].any()
    assert not block.cross.out.weight[CHANNELS:].any()
