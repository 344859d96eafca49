"""A transposed convolution and the layer that joins its result with the encoder's tokens, as matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.layers.upsampling import FeatureUpsampling


def lift_matrices(upsampling: FeatureUpsampling) -> tuple[Tensor, Tensor, Tensor]:
    """A transposed convolution and the joining matrix behind it, in fp32.

    The transposed convolution and its half of the joining matrix follow each other without anything in between: they
    are one matrix.

    Returns:
        (2 * 2 * fine, coarse) from coarse tokens to their four fine ones, joined; (fine, fine) from the encoder's
        tokens; (fine,) bias.
    """
    join = upsampling.join.weight.detach().float().flatten(1)  # (fine, 2 fine): [encoded | lifted]
    fine = join.shape[0]
    up = upsampling.up.weight.detach().float()  # (coarse, fine, 2, 2)
    assert upsampling.up.bias is not None
    assert upsampling.join.bias is not None
    both = torch.einsum("of,cfyx->yxoc", join[:, fine:], up).flatten(0, 2)
    bias = upsampling.join.bias.detach().float() + join[:, fine:] @ upsampling.up.bias.detach().float()
    return both.contiguous(), join[:, :fine].contiguous(), bias
