"""FLOPs of the networks against the paper's figures, at full size: counting takes no arithmetic."""

import pytest

from matchattention.models.flops import count_flops
from matchattention.models.registry import network_config

PAPER = {"rt": 62.5, "rt-full": 90.7, "rt-2d": 64.4, "rt-full-2d": 92.6, "xl": 5240.2}


@pytest.mark.parametrize("name", PAPER)
def test_flops_at_1024x512(name):
    assert count_flops(network_config(name), 512, 1024) / 1e9 == pytest.approx(PAPER[name], rel=0.03)


def test_the_operator_is_counted_by_its_formula():
    from matchattention.ops.match_attention.library import match_attention_flops

    # One query, one head, c = 2, c_v = 3, 4x4 window: QK 2*2*16, CAS 20 + 32 + 108, AV 2*3*16.
    assert match_attention_flops((1, 1, 1, 1, 2), (1, 1, 1, 1, 3), 4, 4) == 64 + 160 + 96
