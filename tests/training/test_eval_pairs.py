"""Packed real pairs, and the errors measured on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from matchattention.errors import InputError
from matchattention.training.eval_pairs import RealPair, read_pairs, write_pairs
from matchattention.training.validation import errors


def test_packed_pairs_survive(tmp_path):
    random = np.random.default_rng(0)
    pairs = []
    for index in range(3):
        disparity = random.uniform(0, 200, (20, 30)).astype(np.float32)
        disparity[:2] = np.inf
        left, right = random.integers(0, 256, (2, 20, 30, 3), dtype=np.uint8)
        pairs.append(RealPair("set", f"scene{index}", left, right, disparity, random.random((20, 30)) > 0.5))
    path = tmp_path / "pairs.bin"
    assert write_pairs(path, pairs, 1 << 20) == ["set/scene0", "set/scene1", "set/scene2"]
    for before, after in zip(pairs, read_pairs(path)):
        assert np.array_equal(before.left, after.left)
        assert np.array_equal(before.right, after.right)
        assert np.array_equal(before.visible, after.visible)
        assert np.array_equal(np.isinf(before.disparity), np.isinf(after.disparity))
        assert np.nanmax(np.abs(before.disparity[2:] - after.disparity[2:])) <= 1 / 256
    assert len(write_pairs(path, pairs, 12_000)) < 3
    assert path.stat().st_size <= 12_000
    with pytest.raises(InputError, match="does not exist"):
        read_pairs(tmp_path / "missing")


def test_error_measures_by_hand():
    truth = torch.tensor([[-10.0, 0.0], [-100.0, 0.0], [-10.0, 0.0], [-10.0, 0.0]])
    field = torch.tensor([[-11.5, 0.0], [-104.0, 0.0], [-14.0, 0.0], [99.0, 0.0]])
    found = errors(field, truth, torch.tensor([True, True, True, False]))
    expected = {"epe": 9.5 / 3, "bad1": 100.0, "bad2": 200 / 3, "bad3": 200 / 3, "d1": 100 / 3}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)
