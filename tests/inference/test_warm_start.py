"""A prediction to start from is given to the network view by view."""

from dataclasses import replace

import numpy as np
import torch

import matchattention as ma
from tests.geometry.pictures import pair
from tests.inference.oracle import TINY


def test_each_view_starts_from_its_own_field() -> None:
    """The position rows of an untrained network are zero: it returns the field that it starts from."""
    torch.manual_seed(0)
    predict = ma.Predictor(ma.create_model(TINY), "cpu", "fp32", check=False)
    left, right, _ = pair(64, 96)
    first = predict(left, right)
    leftwards = np.zeros_like(first.relative_position)
    leftwards[..., 0] = -12.0
    start = replace(first, relative_position=leftwards, relative_position_right=-leftwards)
    found = predict(left, right, initial=start)
    np.testing.assert_allclose(found.relative_position, leftwards, atol=1e-3)
    np.testing.assert_allclose(found.relative_position_right, -leftwards, atol=1e-3)
