"""Limbs swing about the end that holds on to the body."""

import torch

from matchattention.synth.dice import Dice
from matchattention.synth.world.articulation import SMALLEST, swung
from matchattention.synth.world.builder import Primitives
from matchattention.synth.world.rotations import axis_and_angle


def figure() -> Primitives:
    """Of each of two groups a body at the origin and an arm along x from 0.3 to 1.1 m; a post that stands still."""
    half = torch.tensor([[0.2, 0.36, 0.14], [0.4, 0.05, 0.05]] * 2 + [[0.05, 0.05, 1.0]])[None]
    centre = torch.tensor([[0.0, 0.0, 0.0], [0.7, 0.0, 0.0]] * 2 + [[3.0, 0.0, 0.0]])[None]
    count = half.shape[1]
    nothing = torch.zeros(1, count)
    return Primitives(
        torch.eye(3).expand(1, count, 3, 3), centre, half, torch.zeros(1, count, 4), nothing.long(), nothing,
        torch.tensor([[1, 1, 2, 2, 0]]), torch.zeros(1, count, 3), torch.zeros(1, 1), (0, count),
    )  # fmt: skip


def test_only_limbs_of_chosen_groups_swing_and_shoulders_stay():
    primitives = figure()
    axes, centre = swung(Dice(0, [0], "cpu"), primitives, torch.tensor([[False, True, False]]), 0.7)
    still = [0, 2, 3, 4]
    torch.testing.assert_close(axes[:, still], primitives.axes[:, still])
    torch.testing.assert_close(centre[:, still], primitives.centre[:, still])
    _, angle = axis_and_angle(axes[0, 1])
    assert SMALLEST - 1e-4 <= angle <= 0.7
    shoulder = centre[0, 1] - 0.4 * axes[0, 1, 0]
    torch.testing.assert_close(shoulder, torch.tensor([0.3, 0.0, 0.0]), atol=1e-5, rtol=0)
    assert (centre[0, 1] - primitives.centre[0, 1]).norm() > 0.4 * SMALLEST * 0.9


def test_the_flat_body_of_a_car_is_no_limb():
    primitives = figure()
    flat = primitives._replace(
        half=torch.where(primitives.half[..., :1] == 0.4, torch.tensor([0.4, 0.15, 0.05]), primitives.half)
    )
    axes, centre = swung(Dice(0, [0], "cpu"), flat, torch.ones(1, 3, dtype=torch.bool), 0.7)
    torch.testing.assert_close(axes[:, :4], flat.axes[:, :4])
    torch.testing.assert_close(centre[:, :4], flat.centre[:, :4])


def test_swings_differ_from_scene_to_scene():
    primitives = Primitives(*(field.repeat(16, *[1] * (field.dim() - 1)) if isinstance(field, torch.Tensor) else field
                              for field in figure()))  # fmt: skip
    axes, _ = swung(Dice(0, list(range(16)), "cpu"), primitives, torch.ones(16, 3, dtype=torch.bool), 0.7)
    angles = axis_and_angle(axes[:, 1])[1]
    assert angles.max() > 0.3
    assert angles.min() < 0.1
