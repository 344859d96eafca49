"""Where a point appears in the other view."""

from __future__ import annotations

import torch

from matchattention.synth.rays.labels import rigid_match


def test_what_passes_the_camera_has_no_match() -> None:
    """A camera that steps 2 m ahead leaves a wall at 1 m behind, and has one at 4 m twice as near."""
    depth = torch.tensor([1.0, 4.0]).view(1, 1, 1, 2).expand(1, 2, 1, 2).clone()
    depth[:, 1] -= 2
    hit = torch.tensor([0, 1], dtype=torch.int32).expand(1, 2, 1, 2)
    turned = torch.eye(3).expand(1, 2, 3, 3)
    walls = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 4.0]]).expand(1, 2, 2, 3)
    position = torch.tensor([[[0.0, 0.0, 0.0], [0.0, 0.0, 2.0]]])
    lens = torch.tensor([10.0, 0.0, 0.0]).expand(1, 2, 3)
    match = rigid_match(depth, hit, lens, torch.eye(3).expand(1, 2, 2, 3, 3), walls, turned, position)
    near, far = match.field[0, 0, 0]
    assert near.isnan().all()
    torch.testing.assert_close(far, torch.tensor([1.0, 0.0]))  # from x = 1 px at 4 m to x = 2 px at 2 m
    assert match.depth[0, 0, 0, 1] == 2
