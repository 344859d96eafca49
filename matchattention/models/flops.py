"""How much arithmetic a network takes, counted without doing any."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork


def count_flops(config: NetworkConfig, height: int, width: int) -> int:
    """FLOPs of one forward pass of a pair, both views, a multiply-add counted as two.

    The operator counts by its own formula (QK, CAS and AV), everything else by PyTorch's: matrix products and
    convolutions; elementwise work is not counted, as in the paper.
    """
    with FakeTensorMode():
        network = MatchNetwork(config).eval().use_backend("opaque")
        image = torch.empty(1, 3, height, width)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            network(image, image)
    return counter.get_total_flops()
