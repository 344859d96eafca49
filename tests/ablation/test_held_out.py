"""What an ablation's rows are measured by."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from matchattention.ablation.budget import Budget
from matchattention.ablation.held_out import HeldOut
from matchattention.ablation.pool import PairPool


class OffWhereHidden(nn.Module):
    """Right by 6 px but for the left quarter of both views, where it is 10 px off."""

    def forward(self, image0: torch.Tensor, image1: torch.Tensor) -> SimpleNamespace:
        count, _, height, width = image0.shape
        field = torch.zeros(2 * count, height, width, 2)
        field[:count, ..., 0], field[count:, ..., 0] = -6, 6
        field[..., : width // 4, 0] += 10
        return SimpleNamespace(field=field)


def test_visible_and_occluded_pixels_are_measured_apart() -> None:
    images = torch.zeros(2, 2, 3, 32, 64, dtype=torch.uint8)
    disparity = torch.tensor([-6.0, 6.0]).view(1, 2, 1, 1).expand(2, 2, 32, 64).contiguous()
    known = torch.ones(2, 2, 32, 64, dtype=torch.bool)
    occluded = ~known
    occluded[..., :16] = True
    held_out = HeldOut.__new__(HeldOut)
    held_out.kinds = {
        "room": PairPool({"images": images, "disparity": disparity, "known": known, "occluded": occluded})
    }
    found = held_out.measure(OffWhereHidden(), mixed_precision=False)
    assert {mask: found.means[f"room/{mask}/bad1"] for mask in ("all", "visible", "occluded")} == {
        "all": 25.0,
        "visible": 0.0,
        "occluded": 100.0,
    }
    assert found.means["rendered/occluded/epe"] == pytest.approx(10)
    assert found.by_pair["occluded/bad1"] == [100.0, 100.0]


def test_the_average_looks_back_over_a_twentieth_of_the_steps() -> None:
    assert Budget(pairs=16 * 2000, batch=16).average_decay() == pytest.approx(1 - 1 / 100)
    assert Budget(pairs=16 * 40, batch=16).average_decay() == pytest.approx(1 - 1 / 10)
