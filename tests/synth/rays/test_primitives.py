"""Depth of every primitive against closed form, and rays near its edges."""

import math

import pytest
import torch

from matchattention.synth.dice import Dice
from matchattention.synth.rays import cast_torch
from matchattention.synth.rays.dialect import as_torch
from matchattention.synth.rays.dispatch import KINDS, object_normal
from matchattention.synth.rays.masks import mask_keeps
from matchattention.synth.rays.primitives import terrain_height
from matchattention.synth.rays.tables import MISS, ray_tables
from matchattention.synth.world.builder import Builder, random_rotation

CAPACITY = {kind: 4 for kind in KINDS}
SIZE = (33, 41)
FOCAL = 60.0


def tables_of(kind, centre, half, axes=None, shape=()):
    """One primitive as a camera at the origin, looking along z, finds it."""
    builder = Builder(1, torch.device("cpu"))
    frame = builder.frame(torch.zeros(1, 1, 3))
    builder.add(kind, frame, torch.tensor(centre), torch.tensor(half), axes, shape)
    packed = builder.pack(CAPACITY)
    return ray_tables(
        packed.axes[:, None],
        packed.centre[:, None],
        packed.half,
        packed.shape,
        packed.counts,
        packed.slots,
        torch.eye(3)[None, None],
        torch.zeros(1, 1, 3),
    )


def depth_of(kind, centre, half, axes=None, shape=(), size=SIZE, focal=FOCAL):
    """(H, W) depth of one primitive seen from the origin along z."""
    tables = tables_of(kind, centre, half, axes, shape)
    camera = torch.tensor([[[focal, (size[1] - 1) / 2, (size[0] - 1) / 2]]])
    depth, _ = cast_torch.cast(tables, camera, size, torch.zeros(1, 2))
    return depth[0, 0, 0]


def directions(size=SIZE, focal=FOCAL):
    y, x = torch.meshgrid(
        torch.arange(size[0], dtype=torch.float64), torch.arange(size[1], dtype=torch.float64), indexing="ij"
    )
    return torch.stack(((x - (size[1] - 1) / 2) / focal, (y - (size[0] - 1) / 2) / focal, torch.ones_like(x)), -1)


def agree(depth, expected, tolerance=2e-6):
    seen, wanted = depth < MISS / 2, expected < MISS / 2
    assert (seen == wanted).float().mean() > 0.995  # rays exactly on an outline may go either way
    both = seen & wanted
    assert both.sum() > 30
    assert ((depth[both] - expected[both]).abs() / expected[both]).max() < tolerance


def test_sphere():
    centre, radius = torch.tensor([0.1, -0.2, 5.0], dtype=torch.float64), 0.9
    d = directions()
    a, b, c = (d * d).sum(-1), (d * centre).sum(-1), (centre * centre).sum() - radius**2
    rest = b * b - a * c
    expected = torch.where(rest > 0, (b - rest.clamp(min=0).sqrt()) / a, MISS)
    agree(depth_of("ellipsoid", centre.float().tolist(), [radius] * 3), expected)


def test_ellipsoid_stretches_the_sphere():
    half = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    d = directions() / half
    o = -torch.tensor([0.0, 0.0, 6.0], dtype=torch.float64) / half
    a, b, c = (d * d).sum(-1), (d * o).sum(-1), (o * o).sum() - 1
    rest = b * b - a * c
    expected = torch.where(rest > 0, (-b - rest.clamp(min=0).sqrt()) / a, MISS)
    agree(depth_of("ellipsoid", [0.0, 0.0, 6.0], half.tolist()), expected)


def test_box_front_face_and_sides():
    depth = depth_of("box", [0.0, 0.0, 5.0], [0.8, 0.6, 1.0])
    d = directions()
    inside = (d[..., 0].abs() * 4 < 0.8) & (d[..., 1].abs() * 4 < 0.6)
    assert torch.equal(depth < MISS / 2, inside)
    assert (depth[inside] - 4).abs().max() < 1e-6


def test_card_is_a_plane():
    """A plane through (0, 0, 4) tilted by 60 degrees has depth 4 n_z / (n · d)."""
    angle = math.radians(60)
    axes = torch.tensor(
        [[1.0, 0.0, 0.0], [0.0, math.cos(angle), math.sin(angle)], [0.0, -math.sin(angle), math.cos(angle)]]
    )
    normal = axes[2].double()
    expected = 4 * normal[2] / (directions() @ normal)
    depth = depth_of("card", [0.0, 0.0, 4.0], [50.0, 50.0, 1.0], axes)
    assert ((depth - expected).abs() / expected).max() < 1e-6


def test_upright_cylinder():
    radius, distance = 0.7, 4.0
    axes = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    d = directions()
    a, b, c = d[..., 0] ** 2 + 1, torch.full_like(d[..., 0], distance), distance**2 - radius**2
    rest = b * b - a * c
    expected = torch.where(rest > 0, (b - rest.clamp(min=0).sqrt()) / a, MISS)
    agree(depth_of("frustum", [0.0, 0.0, distance], [radius, radius, 20.0], axes, (0.0,)), expected)


def test_cone_points_at_its_tip():
    """A cone seen along its axis from the tip: depth where radius (1 - z')/2 meets the ray."""
    axes = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # the tip (object z = 1) faces the camera
    d = directions()
    r = d[..., :2].norm(dim=-1)
    # The surface: x² + y² = ((z - 3) / 2)² between the tip at z = 3 and the base at z = 5.
    expected = 3 / (1 - 2 * r)
    expected = torch.where((r < 0.5) & (expected < 5) & (expected > 0), expected, MISS)
    agree(depth_of("frustum", [0.0, 0.0, 4.0], [1.0, 1.0, 1.0], axes, (1.0,)), expected)


def test_thin_wire_far_away_keeps_its_digits():
    """A wire of 1 mm at 20 m: 20 000 radii away, where b² - ac would be noise."""
    axes = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    depth = depth_of("frustum", [0.0, 0.0, 20.0], [0.001, 0.001, 1.0], axes, (0.0,), focal=20000.0)
    seen = depth < MISS / 2
    columns = seen.any(0).nonzero().flatten()
    assert columns.tolist() == [19, 20, 21] or columns.tolist() == [20]
    assert (depth[seen] - 20).abs().max() < 0.0011


def test_torus_along_its_axis():
    """Looking down the axis, the ring's crest is nearest and depth follows the tube's circle."""
    tube, distance = 0.3, 5.0
    depth = depth_of("torus", [0.0, 0.0, distance], [1.0, 1.0, 1.0], None, (tube,), (65, 65), 150.0).double()
    d = directions((65, 65), 150.0)
    seen = depth < MISS / 2
    point = d * torch.where(seen, depth, 0.0)[..., None] - torch.tensor([0.0, 0.0, distance])
    ring = point[..., :2].norm(dim=-1) - (1 - tube)
    off = (ring**2 + point[..., 2] ** 2).sqrt() - tube
    assert seen.sum() > 500
    assert off[seen].abs().max() < 1e-4
    assert not seen[32, 32]  # through the hole


def test_four_sided_prism_is_a_box():
    """Sides across x and y at cos 45°: the square that the unit circle holds."""
    edge = math.cos(math.pi / 4)
    prism = depth_of("prism", [0.1, 0.2, 5.0], [0.8, 0.6, 1.0], None, (4.0, 0.0))
    box = depth_of("box", [0.1, 0.2, 5.0], [0.8 * edge, 0.6 * edge, 1.0])
    agree(prism, box.double(), 1e-3)


def test_pyramid_narrows_to_its_tip():
    """Seen along the axis, the sides of a four-sided pyramid rise from |x| = cos 45° at the base to the tip."""
    axes = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # the tip faces the camera, at depth 3
    depth = depth_of("prism", [0.0, 0.0, 4.0], [1.0, 1.0, 1.0], axes, (4.0, 1.0)).double()
    d = directions()
    reach = d[..., :2].abs().amax(-1)
    # The surface: max(|x|, |y|) = cos 45° (z - 3) / 2 between z = 3 and z = 5.
    expected = 3 / (1 - 2 * reach / math.cos(math.pi / 4))
    expected = torch.where((expected > 0) & (expected < 5), expected, MISS)
    agree(depth, expected, 2e-3)


@pytest.mark.parametrize("kind", ["box", "ellipsoid", "frustum", "torus", "prism", "terrain"])
def test_normals_are_those_of_the_depth(kind):
    """The normal is orthogonal to the surface that neighbouring hits span."""
    shape = {"frustum": (0.4,), "torus": (0.3,), "prism": (5.0, 0.3), "terrain": (0.5, 0.2)}.get(kind, ())
    axes = random_rotation(Dice(9, [1], "cpu"), 1)[0, 0]
    if kind == "terrain":
        axes = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    centre = torch.tensor([0.1, 0.7 if kind == "terrain" else 0.1, 3.0])
    size, focal = (81, 101), 90.0
    depth = depth_of(
        kind, centre.tolist(), [0.9, 0.9, 0.9] if kind != "terrain" else [1.5, 1.5, 0.3], axes, shape, size, focal
    )
    half = torch.tensor([0.9, 0.9, 0.9] if kind != "terrain" else [1.5, 1.5, 0.3])
    point = directions(size, focal).float() * depth[..., None]
    local = (point - centre) @ axes.T / half
    p0, p1 = (*shape, 0.0, 0.0)[:2]
    lanes = [local[..., k].flatten() for k in range(3)]
    number = torch.full_like(lanes[0], KINDS.index(kind), dtype=torch.int32)
    found = as_torch(object_normal)(number, *lanes, torch.full_like(lanes[0], p0), torch.full_like(lanes[0], p1))
    normal = torch.stack(found, -1).reshape(*size, 3) / half @ axes
    normal = normal / normal.norm(dim=-1, keepdim=True)
    seen = (depth < MISS / 2)[1:-1, 1:-1] & (depth < MISS / 2)[1:-1, 2:] & (depth < MISS / 2)[2:, 1:-1]
    seen &= (depth < MISS / 2)[1:-1, :-2] & (depth < MISS / 2)[:-2, 1:-1]
    across = point[1:-1, 2:] - point[1:-1, :-2]
    down = point[2:, 1:-1] - point[:-2, 1:-1]
    spanned = torch.linalg.cross(across, down)
    spanned = spanned / spanned.norm(dim=-1, keepdim=True)
    cosine = (spanned * normal[1:-1, 1:-1]).sum(-1).abs()[seen]
    assert len(cosine) > 200
    assert cosine.median() > 0.999
    assert (cosine > 0.97).float().mean() > 0.85  # the rest straddles an edge


def test_terrain_hits_lie_on_it():
    axes = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    depth = depth_of("terrain", [0.0, 1.5, 6.0], [5.0, 5.0, 0.5], axes, (0.7, 0.3))
    seen = depth < MISS / 2
    point = directions().float() * torch.where(seen, depth, 0.0)[..., None] - torch.tensor([0.0, 1.5, 6.0])
    x, y, z = point[..., 0] / 5, point[..., 2] / 5, -point[..., 1] / 0.5
    off = z - as_torch(terrain_height)(x, y, 0.7, 0.3)
    assert seen.sum() > 300
    assert off[seen].abs().max() < 2e-3


@pytest.mark.parametrize("kind", ["box", "ellipsoid", "frustum", "torus"])
def test_bounds_hide_nothing(kind):
    """Skipping pixels by a primitive's bounds gives what casting every pixel gives."""
    dice = Dice(3, [0], "cpu")
    for _ in range(6):
        axes = random_rotation(dice, 1)[0, 0]
        size = float(dice.uniform(0.2, 1.0, 1))
        centre = [float(dice.uniform(-1.0, 1.0, 1)), float(dice.uniform(-1.0, 1.0, 1)), 3.0]
        shape = (0.3,) if kind != "box" else ()
        near = depth_of(kind, centre, [size] * 3, axes, shape)
        tables = tables_of(kind, centre, [size] * 3, axes, shape)
        row = tables.rays[0, 0, tables.slots[KINDS.index(kind)]].tolist()
        d = directions().float()
        assert torch.equal(near, cast_torch.intersect(KINDS.index(kind), row, d[..., 0], d[..., 1]))


def test_inside_objects_are_not_hit():
    """A camera inside a closed object sees out of it instead of hitting at negative or tiny depths."""
    for kind in ("box", "ellipsoid"):
        depth = depth_of(kind, [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
        assert (depth == MISS).all()


def test_edges_are_closed():
    """No ray slips between the faces of a cube that six cards form around the view."""
    builder = Builder(1, torch.device("cpu"))
    frame = builder.frame(torch.zeros(1, 1, 3))
    for axis in range(3):
        for side in (-1.0, 1.0):
            centre = torch.zeros(3)
            centre[axis] = 2.0 * side
            axes = torch.roll(torch.eye(3), 2 - axis, 0)  # the third axis is the normal
            builder.add("card", frame, centre, torch.tensor([2.0, 2.0, 1.0]), axes)
    packed = builder.pack({**CAPACITY, "card": 6})
    dice = Dice(1, [0], "cpu")
    rotation = random_rotation(dice, 8).transpose(0, 1)[0:1].expand(1, 1, 3, 3)
    tables = ray_tables(
        packed.axes[:, None],
        packed.centre[:, None],
        packed.half,
        packed.shape,
        packed.counts,
        packed.slots,
        rotation,
        torch.tensor([[[0.3, -0.4, 0.2]]]),
    )
    depth, hit = cast_torch.cast(tables, torch.tensor([[[20.0, 100.0, 80.0]]]), (161, 201), torch.zeros(1, 2))
    assert (hit >= 0).float().mean() > 0.9999
    assert depth.min() > 0.1


@pytest.mark.parametrize("mask", range(13))
def test_cutouts_cut_some_and_keep_some(mask):
    v, u = torch.meshgrid(torch.linspace(-1.2, 1.2, 121), torch.linspace(-1.2, 1.2, 121), indexing="ij")
    outside = (u.abs() > 1) | (v.abs() > 1)
    shares = []
    for density in (0.1, 0.5, 0.9):
        kept = as_torch(mask_keeps)(mask, u, v, 6.0, 6.0, density)
        assert not kept[outside].any()
        shares.append(kept[~outside].float().mean().item())
    assert min(shares) > 0.02
    assert mask == 0 or max(shares) < 0.95
    assert shares[0] <= shares[2] + 0.02 or mask == 11  # a star's arms grow longer and thinner
