"""Objects without a place of their own: floating solids, cut-out cards and wires in front of the camera."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.synth.dice import Dice
from matchattention.synth.rays.primitives import PRIMITIVES
from matchattention.synth.world import cutouts, palette, plants
from matchattention.synth.world.builder import Builder, pitch_rotation, random_rotation, vector, yaw_rotation
from matchattention.synth.world.camera import Camera
from matchattention.synth.world.config import SceneConfig

_MASKS = (
    cutouts.DISC,
    cutouts.LATTICE,
    cutouts.CHAIN,
    cutouts.LEAVES,
    cutouts.SLATS,
    cutouts.FRAME,
    cutouts.RAGGED,
    cutouts.GLYPHS,
    cutouts.BRANCHES,
    cutouts.GRASS,
    cutouts.STAR,
    cutouts.WHEEL,
    0,
)
_MASK_WEIGHTS = (0.6, 1.2, 1.0, 2.0, 0.8, 0.8, 1.0, 0.8, 1.2, 0.6, 0.5, 0.7, 1.5)


def present(dice: Dice, most: int, low: float = 0.0, high: float = 1.0, probability: float = 1.0) -> Tensor:
    """(B, most) bool: a random number of things, `low` to `high` of the most, none with 1 - probability."""
    share = dice.uniform(low, high, 1) * dice.chance(probability, 1)
    order = (torch.arange(most, device=dice.device, dtype=torch.float32) + 0.5) / most
    return order < share


def floating(
    builder: Builder,
    dice: Dice,
    camera: Camera,
    config: SceneConfig,
    near: float,
    far: float,
    probability: float,
    most: int,
) -> None:
    """Solids of all kinds, sizes relative to their distance, any orientation."""
    if most < 8:
        return
    shares = {kind: s.share if config.curved else s.share_uncurved for kind, s in PRIMITIVES.items()}
    split = {kind: max(int(most * share), 1) for kind, share in shares.items() if share}
    filled = present(dice, most, 0.15, 1.0, probability)
    for kind, n in split.items():
        origin, depth = camera.scatter(dice, near, far, n)
        size = depth * dice.log_uniform(0.015, 0.16, n)
        half = vector(size, size * dice.log_uniform(0.3, 1.6, n), size * dice.log_uniform(0.3, 1.6, n))
        half, shape = PRIMITIVES[kind].loose(dice, size, half)
        builder.add(
            kind,
            builder.frame(origin, moves=True),
            torch.zeros(3, device=builder.device),
            half,
            random_rotation(dice, n),
            shape,
            palette.any_material(dice, n),
            filled[:, torch.arange(n, device=dice.device) * most // n],
        )


def beside(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, probability: float) -> None:
    """A large near box that the left margin of the image cuts (the right one in a quarter of the cases).

    The other camera sees more of it or less: what the left view shows at its very margin lies outside of the right one.
    """
    height, width = camera.size
    depth = dice.log_uniform(near, far, 1)
    side = torch.where(dice.chance(0.75, 1), -1.0, 1.0)
    reach = width * depth / camera.focal[:, None]  # m that the image spans there
    x = side * reach * dice.uniform(0.42, 0.6, 1)
    y = reach * (height / width) * dice.uniform(-0.3, 0.4, 1)
    half = vector(
        reach * dice.uniform(0.08, 0.25, 1), reach * dice.uniform(0.1, 0.5, 1), reach * dice.uniform(0.01, 0.3, 1)
    )
    local = vector(x, y, depth + half[..., 2])
    painted = torch.where(dice.chance(0.4, 1), palette.any_paint(dice, 1), palette.any_material(dice, 1))
    turn = yaw_rotation(dice.normal(0.0, 0.3, 1))
    builder.add(
        "box",
        builder.frame(camera.position[:, None] + local @ camera.rotation, moves=True),
        torch.zeros(3, device=builder.device),
        half,
        turn @ camera.rotation[:, None],
        material=painted,
        active=dice.chance(probability, 1),
    )


def cards(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, probability: float, most: int) -> None:
    """Cut-outs of all patterns, roughly facing the camera; cells of the pattern are some pixels wide."""
    origin, depth = camera.scatter(dice, near, far, most)
    metres = depth / camera.focal[:, None]  # one pixel at that distance
    half_u = depth * dice.log_uniform(0.04, 0.35, most)
    half_v = half_u * dice.log_uniform(0.4, 1.8, most)
    cell = metres * dice.log_uniform(4.0, 60.0, most)
    turn = yaw_rotation(dice.normal(0.0, 0.6, most)) @ pitch_rotation(dice.normal(0.0, 0.35, most))
    pattern = torch.tensor(_MASKS, dtype=torch.float32, device=dice.device)[dice.choice(_MASK_WEIGHTS, most)]
    foliage = (pattern == cutouts.LEAVES) | (pattern == cutouts.GRASS) | (pattern == cutouts.BRANCHES)
    material = torch.where(foliage & dice.chance(0.7, most), palette.FOLIAGE, palette.any_material(dice, most))
    rotation = turn @ camera.rotation[:, None]
    builder.add(
        "card",
        builder.frame(origin, moves=True),
        torch.zeros(3, device=builder.device),
        vector(half_u, half_v, 1.0),
        rotation,
        (pattern, (half_u / cell).clamp(1.0, 24.0), (half_v / cell).clamp(1.0, 24.0), dice.unit(most)),
        material,
        present(dice, most, 0.1, 1.0, probability),
    )


def wires(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, probability: float, most: int) -> None:
    """Rods from a fraction of a pixel to several pixels thick; single, in parallel rows, upright or across."""
    origin, depth = camera.scatter(dice, near, far, most)
    # A row shares direction and depth: railings, strings, cables.
    row = dice.chance(0.5, 1)
    step = torch.arange(most, device=dice.device, dtype=torch.float32)[None, :, None]
    direction = random_rotation(dice, most)[..., 2, :]
    upright = torch.tensor([0.0, 1.0, 0.0], device=dice.device)
    direction = torch.where(dice.chance(0.4, most)[..., None], upright + 0.08 * direction, direction)
    pitch = depth[:, :1, None] * dice.log_uniform(0.01, 0.08, 1, 1)
    across = camera.rotation[:, None, 0] * step * pitch
    origin = torch.where(row[..., None], origin[:, :1] + across, origin)
    direction = torch.where(row[..., None], direction[:, :1], direction)
    depth = torch.where(row, depth[:, :1], depth)
    radius = depth / camera.focal[:, None] * dice.log_uniform(0.35, 3.5, most)
    length = depth * torch.where(row, dice.log_uniform(0.1, 1.0, 1), dice.log_uniform(0.1, 1.5, most))
    reach = 0.5 * length[..., None] * direction / direction.norm(dim=-1, keepdim=True)
    frame = builder.frame(origin, moves=True)
    builder.bar(
        frame,
        -reach,
        reach,
        radius,
        torch.where(dice.chance(0.5, most), palette.METAL, palette.any_material(dice, most)),
        present(dice, most, 0.2, 1.0, probability),
        torch.where(dice.chance(0.7, most), 0.0, dice.unit(most)),
    )


def hanging(
    builder: Builder, dice: Dice, camera: Camera, near: float, far: float, probability: float, most: int
) -> None:
    """Bundles of leaves or branches in the air."""
    origin, depth = camera.scatter(dice, near, far, most)
    radius = depth * dice.log_uniform(0.06, 0.3, most)
    leaf = depth / camera.focal[:, None] * dice.log_uniform(4.0, 24.0, most)
    active = present(dice, most, 0.2, 1.0, probability)
    frame = builder.frame(origin, moves=True)
    plants.crown(builder, dice, frame, torch.zeros(3, device=builder.device), radius, leaf, 4, active)
    plants.crown(
        builder,
        dice,
        frame,
        torch.zeros(3, device=builder.device),
        radius,
        leaf * 2.0,
        2,
        active,
        palette.BARK,
        cutouts.BRANCHES,
    )


def panes(builder: Builder, dice: Dice, camera: Camera, near: float, far: float, probability: float) -> None:
    """One or two sheets of glass that the scene is seen through."""
    n = 2
    origin, depth = camera.scatter(dice, near, far, n, margin=0.5)
    half = torch.stack(
        (depth * dice.uniform(0.1, 0.7, n), depth * dice.uniform(0.1, 0.7, n), torch.ones_like(depth)), -1
    )
    turn = yaw_rotation(dice.normal(0.0, 0.6, n)) @ pitch_rotation(dice.normal(0.0, 0.2, n))
    builder.add(
        "pane",
        builder.frame(origin, moves=True),
        torch.zeros(3, device=builder.device),
        half,
        turn @ camera.rotation[:, None],
        material=palette.PANE,
        active=present(dice, n, 0.3, 1.0, probability),
    )
