"""Convex and feature upsampling."""

import pytest
import torch
import torch.nn.functional as F

from matchattention.layers.tokens import as_image, as_tokens
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling


@pytest.mark.parametrize("border", ["replicate", "zero"])
def test_convex_upsampling_is_raft_s(border):
    """Against unfold, as the original formulates it."""
    torch.manual_seed(0)
    upsample = ConvexUpsampling(8, 8, 2, border)
    field, features = torch.randn(2, 5, 6, 2), torch.randn(2, 5, 6, 8)
    mask = upsample.neighbour_weights(features)
    mode = "replicate" if border == "replicate" else "constant"
    padded = F.pad(as_image(field) * 2, (1, 1, 1, 1), mode=mode)
    neighbours = F.unfold(padded, 3).view(2, 2, 9, 5, 6)
    expected = torch.einsum("bcnhw,bhwnf->bhwfc", neighbours, mask).view(2, 5, 6, 2, 2, 2)
    expected = expected.transpose(2, 3).reshape(2, 10, 12, 2)
    torch.testing.assert_close(upsample(features, field)[0], expected)
    torch.testing.assert_close(mask.sum(-2), torch.ones(2, 5, 6, 4))


def test_constant_field_stays_constant_up_to_the_border():
    upsample = ConvexUpsampling(8, 8, 4)
    field = torch.full((1, 3, 4, 2), -7.0)
    (fine,) = upsample(torch.randn(1, 3, 4, 8), field)
    torch.testing.assert_close(fine, torch.full((1, 12, 16, 2), -28.0))


def test_feature_upsampling_is_its_convolutions():
    """The matrix product stands for the transposed convolution it is made from."""
    torch.manual_seed(0)
    module = FeatureUpsampling(6, 4)
    coarse, encoded = torch.randn(2, 3, 5, 6), torch.randn(2, 6, 10, 4)
    joined = torch.cat((as_image(encoded), module.up(as_image(coarse))), 1)
    expected = module.smooth(F.relu(module.join(joined)))
    torch.testing.assert_close(module(coarse, encoded), as_tokens(expected), rtol=1e-4, atol=1e-5)
