"""Exactness of what is rendered: views agree with the labels, labels with each other, kernels with their twins."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from matchattention.synth.rays import cast_torch, shade_torch
from matchattention.synth.rays.dialect import HAS_TRITON, as_torch
from matchattention.synth.rays.dispatch import object_normal
from matchattention.synth.rays.shading import AMBIENCE
from matchattention.synth.rays.tables import RayTables, photo_pyramid, slot_kinds
from matchattention.synth.stream import render as rendering
from matchattention.synth.stream import scene_stream as streaming
from matchattention.synth.stream.scene_stream import SceneStream
from matchattention.synth.world.config import PRESETS
from matchattention.synth.world.scene import convert, draw_scenes

SMALL = replace(PRESETS["small"], photos=0.0)


def rendered(config, indices, size, seed=3):
    return rendering.render(draw_scenes(config, seed, indices, size), config, size)


def sample_rows(values, x):
    """Linear interpolation of (B, C, H, W) at columns x (B, H, W)."""
    width = values.shape[-1]
    x = x.clamp(0, width - 1.001)
    low = x.floor().long()
    share = (x - low)[:, None]
    index = low[:, None].expand(-1, values.shape[1], -1, -1)
    return values.gather(3, index) * (1 - share) + values.gather(3, index + 1) * share


@pytest.mark.parametrize("layout", ["room", "tabletop", "street", "forest", "corridor", "tunnel", "flying"])
def test_labels_are_consistent(layout):
    """At the exact place of its match, a visible pixel's point is what the other view sees, to < 0.01 px."""
    config = replace(SMALL, layouts={layout: 1.0})
    size = (40, 64)
    scene = draw_scenes(config, 5, range(2), size)
    result = rendering.render(scene, config, size)
    assert torch.isfinite(result.image).all()
    assert result.image.min() >= 0
    disparity = torch.tensor([-1.0, 1.0])[None, :, None, None] * result.field[..., 0]
    assert (disparity >= 0).all()
    assert (disparity <= 0.5 * size[1]).all()
    assert (result.field[..., 1] == 0).all()
    assert result.valid.float().mean() > 0.95
    views = rendering.two_views(scene, result.baseline)
    ready = rendering.prepare(scene, views, config, photo_pyramid(None, torch.device("cpu")))
    other = RayTables(ready.tables.rays.flip(1), ready.tables.bounds.flip(1), ready.tables.counts, ready.tables.slots)
    shift = result.field.movedim(-1, 2)
    depth, _ = cast_torch.cast(other, ready.cameras, size, torch.zeros(1, 2), shift)
    back = (result.lens[:, 0] * result.baseline)[:, None, None, None] / depth[:, :, 0]
    visible = ~result.occluded & result.valid & (disparity > 0)
    assert visible.float().mean() > 0.3
    off = (back - disparity)[visible].abs()
    # A ray exactly on an outline or through a seam may pass it in one view and not in the other.
    assert (off > 0.01).float().mean() < 5e-4
    assert off.median() < 1e-4


def test_right_warped_by_disparity_is_left():
    """On visible diffuse pixels away from depth edges the views agree to interpolation error."""
    config = replace(
        SMALL,
        layouts={"room": 1.0},
        specular=False,
        mirrors=0.0,
        cards=False,
        wires=False,
        plants=False,
        emission=False,
        samples=4,
        disparity=(0.1, 0.2),
        vertical_error=(0.0, 0.0),
    )
    size = (64, 96)
    result = rendered(config, range(3), size)
    left, right = result.image.unbind(1)
    x = torch.arange(size[1], dtype=torch.float32) + result.field[:, 0, ..., 0]
    warped = sample_rows(right, x)
    hit = result.hit[:, 0]
    smooth = torch.ones_like(x, dtype=torch.bool)
    smooth[..., 2:-2] = (hit[..., 2:-2] == hit[..., :-4]) & (hit[..., 2:-2] == hit[..., 4:])
    # Both neighbours in the right view must show the same thing too.
    seen = sample_rows(result.hit[:, 1:].float(), x)[:, 0]
    use = smooth & ~result.occluded[:, 0] & result.valid[:, 0] & (seen == hit) & (x > 1) & (x < size[1] - 2)
    assert use.float().mean() > 0.2
    error = (warped - left).abs().mean(1)[use] / left.mean(1)[use].clamp(min=0.02)
    step = (left[..., 1:] - left[..., :-1]).abs().mean(1)[use[..., 1:]] / left[..., 1:].mean(1)[use[..., 1:]].clamp(
        min=0.02
    )
    assert error.median() < 0.01
    assert error.mean() < step.mean()  # better than moving by one pixel


def test_out_of_view_is_occluded():
    result = rendered(replace(SMALL, layouts={"flying": 1.0}), range(2), (32, 48))
    x = torch.arange(48) + result.field[:, 0, ..., 0]
    assert result.occluded[:, 0][x < -0.5].all()
    x = torch.arange(48) + result.field[:, 1, ..., 0]
    assert result.occluded[:, 1][x > 47.5].all()


def test_occlusion_is_where_something_is_in_front():
    """An occluded pixel inside the other view is covered by a nearer surface there."""
    size = (48, 72)
    result = rendered(replace(SMALL, layouts={"tabletop": 1.0}), range(2), size)
    disparity, other = -result.field[:, 0, ..., 0], result.field[:, 1, ..., 0]
    x = torch.arange(size[1]) - disparity
    inside = (x >= 0) & (x <= size[1] - 1)
    low = x.clamp(0, size[1] - 2).floor().long()
    nearest = torch.maximum(other.gather(2, low), other.gather(2, low + 1))
    hidden = result.occluded[:, 0] & inside & result.valid[:, 0]
    assert hidden.any()
    # Thin things may fall between the two neighbouring pixel centres, so most, not all.
    assert (nearest[hidden] > disparity[hidden] - 0.01).float().mean() > 0.9


def test_largest_disparity_meets_the_draw():
    config = replace(SMALL, layouts={"room": 1.0}, disparity=(0.2, 0.2001))
    result = rendered(config, range(4), (48, 72))
    ordered = -result.field[:, 0, ..., 0]
    ordered = ordered.flatten(1).sort(dim=1, descending=True).values
    quantile = ordered[:, int(config.near_quantile * ordered.shape[1])]
    assert ((quantile / 72 - 0.2).abs() < 0.05).all()


def test_memory_is_bounded_by_the_run(monkeypatch):
    """A batch is rendered in runs: the rays of all its pairs never exist at once."""
    sizes = []
    original = rendering.cast

    def spy(tables, *rest, **more):
        sizes.append(tables.rays.shape[0])
        return original(tables, *rest, **more)

    monkeypatch.setattr(rendering, "cast", spy)
    monkeypatch.setattr(streaming, "RENDER_AT_ONCE", 2)
    batch = SceneStream(replace(SMALL, layouts={"flying": 1.0}), (8, 8), 5, 1, "cpu").next()
    assert batch.image0.shape == (5, 3, 8, 8)
    assert max(sizes) <= 2


@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_triton_equals_its_twin():
    """Cast and shade through the interpreter, on a scene with every kind of primitive."""
    from matchattention.synth.rays import cast_triton, shade_triton

    if not torch.cuda.is_available():
        pytest.importorskip("triton.runtime.interpreter")
    capacity = {"card": 5, "box": 3, "ellipsoid": 3, "frustum": 4, "torus": 1, "terrain": 1, "prism": 3, "pane": 1}
    config = replace(SMALL, layouts={"forest": 1.0, "tabletop": 1.0}, capacity=capacity, shadow_size=16, samples=4)
    size = (6, 16)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    bank = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    scene = draw_scenes(replace(config, photos=0.6), 3, range(2), size, photos=3)
    twin = rendering.prepare(
        scene, rendering.two_views(scene, torch.full((2,), 0.1)), config, photo_pyramid(bank, torch.device("cpu"))
    )
    ready = convert(twin, lambda tensor: tensor.to(device))
    offsets = rendering.sample_offsets(4, torch.device("cpu"))
    depth, hit = cast_torch.cast(twin.tables, twin.cameras, size, offsets)
    fast_depth, fast_hit = cast_triton.cast(ready.tables, ready.cameras, size, offsets.to(device))
    assert len(hit.unique()) > 6
    same = hit == fast_hit.cpu()
    assert same.float().mean() > 0.999
    assert torch.allclose(depth[same], fast_depth.cpu()[same], rtol=1e-5)
    image = shade_torch.shade(twin.shading, twin.tables, twin.cameras, offsets, depth, hit)
    fast = shade_triton.shade(
        ready.shading, ready.tables, ready.cameras, offsets.to(device), depth.to(device), hit.to(device)
    )
    assert torch.allclose(image, fast.cpu(), rtol=2e-3, atol=1e-4)
    shift = torch.linspace(-4, 4, size[1]).expand(2, 2, 2, *size).contiguous()
    moved, _ = cast_torch.cast(twin.tables, twin.cameras, size, torch.zeros(1, 2), shift)
    fast_moved, _ = cast_triton.cast(
        ready.tables, ready.cameras, size, torch.zeros(1, 2, device=device), shift.to(device)
    )
    assert ((moved - fast_moved.cpu()).abs() <= 1e-5 * moved).float().mean() > 0.999


@pytest.mark.parametrize("layout", ["room", "street"])
def test_flow_follows_the_points(layout):
    """A visible pixel's match, cast in the second frame, lies on the same body, and the way back leads home."""
    config = replace(SMALL, layouts={layout: 1.0}, task="flow", camera_still=0.0)
    size = (40, 64)
    scene = draw_scenes(config, 5, range(2), size)
    result = rendering.render(scene, config, size)
    views = rendering.two_views(scene, result.baseline)
    ready = rendering.prepare(scene, views, config, photo_pyramid(None, torch.device("cpu")))
    other = RayTables(ready.tables.rays.flip(1), ready.tables.bounds.flip(1), ready.tables.counts, ready.tables.slots)
    _, hit = cast_torch.cast(other, ready.cameras.flip(1), size, torch.zeros(1, 2), result.field.movedim(-1, 2))
    visible = ~result.occluded & result.valid
    assert visible.float().mean() > 0.3
    assert (hit[:, :, 0] == result.hit)[visible].float().mean() > 0.995
    assert result.field[visible].norm(dim=-1).median() > 0.05
    assert result.field[..., 1].abs().max() > 0.05
    # Sample the backward field at integer matches only where it is smooth: same body, small motion gradient.
    x = torch.arange(size[1]) + result.field[:, 0, ..., 0]
    y = torch.arange(size[0])[:, None] + result.field[:, 0, ..., 1]
    xi, yi = x.round().long().clamp(0, size[1] - 1), y.round().long().clamp(0, size[0] - 1)
    batch = torch.arange(2)[:, None, None]
    back = result.field[batch, 1, yi, xi]
    same = visible[:, 0] & (result.hit[batch, 1, yi, xi] == result.hit[:, 0]) & result.valid[batch, 1, yi, xi]
    assert ((back + result.field[:, 0])[same].norm(dim=-1).median()) < 0.2


def test_still_world_has_no_flow():
    config = replace(
        SMALL, layouts={"room": 1.0}, task="flow", motion=(1e-7, 2e-7), turn=1e-7, camera_roll=1e-7, still=1.0
    )
    result = rendered(config, range(1), (24, 32))
    assert result.field.abs().max() < 0.01
    assert result.occluded.float().mean() < 0.02


def test_row_error_moves_the_right_view_only():
    base = replace(SMALL, layouts={"street": 1.0})
    straight = rendered(replace(base, vertical_error=(0.0, 2.0)), range(2), (32, 48))
    crooked = rendered(replace(base, vertical_error=(1.0, 2.0)), range(2), (32, 48))
    assert torch.equal(straight.field[:, 0], crooked.field[:, 0])
    assert torch.equal(straight.occluded[:, 0], crooked.occluded[:, 0])
    assert not torch.equal(straight.depth[:, 1], crooked.depth[:, 1])


def test_mirrors_and_panes_change_colours_not_labels():
    base = replace(SMALL, layouts={"room": 1.0}, mirrors=0.0, panes=1e-9)
    plain = rendered(base, range(3), (24, 40))
    for changed in (replace(base, mirrors=0.9), replace(base, panes=1.0)):
        other = rendered(changed, range(3), (24, 40))
        assert torch.equal(plain.field, other.field)
        assert (plain.image - other.image).abs().flatten(1).max(1).values.max() > 0.05


def test_switching_light_off_changes_colours_not_labels():
    base = replace(SMALL, layouts={"tabletop": 1.0})
    plain = rendered(base, range(2), (24, 40))
    switches = ({"shadows": False}, {"specular": False}, {"patterns": False}, {"emission": False}, {"plain": 1.0})
    for changed in (replace(base, **switch) for switch in switches):
        other = rendered(changed, range(2), (24, 40))
        assert torch.equal(plain.field, other.field)
        if changed.emission:  # few materials glow, perhaps none here
            assert not torch.equal(plain.image, other.image)


def surface_normals(tables: RayTables, cameras: Tensor, depth: Tensor, hit: Tensor) -> Tensor:
    """Unit normals in each camera's coordinates, towards the viewer; zero for the sky.

    Args:
        tables: of the views that were cast.
        cameras: (B, V, 3) px: focal length and principal point.
        depth: (B, V, H, W) m.
        hit: (B, V, H, W) int32 slot, -1 for the sky.

    Returns:
        (B, V, 3, H, W).
    """
    height, width = depth.shape[-2:]
    sky = hit < 0
    slot = hit.clamp(min=0).long()
    rows = torch.gather(tables.rays, 2, slot.flatten(2)[..., None].expand(-1, -1, -1, 16)).unflatten(2, (height, width))
    focal, cx, cy = (column[..., None, None] for column in cameras.unbind(-1))
    x = torch.arange(width, dtype=torch.float32, device=depth.device)
    y = torch.arange(height, dtype=torch.float32, device=depth.device)[:, None]
    reach = torch.where(sky, 1.0, depth)
    point = torch.stack(((x - cx) / focal * reach, (y - cy) / focal * reach, reach), -1)
    matrix = rows[..., :9].unflatten(-1, (3, 3))
    local = (matrix @ point[..., None])[..., 0] + rows[..., 9:12]
    kinds = slot_kinds(tables.slots, depth.device)[slot]
    gradient = torch.stack(as_torch(object_normal)(kinds, *local.unbind(-1), rows[..., 12], rows[..., 13]), -1)
    normal = torch.nn.functional.normalize((matrix.transpose(-1, -2) @ gradient[..., None])[..., 0], dim=-1)
    facing = (normal * point).sum(-1, keepdim=True)
    normal = torch.where(facing > 0, -normal, normal)
    return torch.where(sky[..., None], 0.0, normal).movedim(-1, 2)


def test_normals_follow_the_depth():
    """On flat parts the normal is that of the plane through neighbouring points, and always faces the viewer."""
    config = replace(SMALL, layouts={"room": 1.0}, cards=False, plants=False, wires=False)
    size = (48, 64)
    scene = draw_scenes(config, 5, range(1), size)
    result = rendering.render(scene, config, size)
    views = rendering.two_views(scene, result.baseline)
    ready = rendering.prepare(scene, views, config, photo_pyramid(None, torch.device("cpu")))
    normal = surface_normals(ready.tables, ready.cameras, result.depth, result.hit)[0, 0]
    focal, cx, cy = ready.cameras[0, 0].tolist()
    x, y = torch.arange(size[1]), torch.arange(size[0])[:, None]
    depth = result.depth[0, 0]
    point = torch.stack(((x - cx) / focal * depth, (y - cy) / focal * depth, depth))
    assert ((normal * point).sum(0) <= 0).all()
    across = point[:, 1:-1, 2:] - point[:, 1:-1, :-2]
    down = point[:, 2:, 1:-1] - point[:, :-2, 1:-1]
    spanned = torch.nn.functional.normalize(torch.linalg.cross(across, down, dim=0), dim=0)
    cosine = (spanned * normal[:, 1:-1, 1:-1]).sum(0).abs()
    assert cosine.median() > 0.9999
    assert (cosine > 0.99).float().mean() > 0.5


def test_clear_surfaces_show_what_is_behind_and_keep_their_labels():
    """Windows of cars: colours change where one sees through, no label does."""
    size = (32, 64)
    opaque, clear = (
        rendered(replace(SMALL, layouts={"street": 1.0}, clear=share), range(6), size) for share in (0.0, 0.5)
    )
    for name in ("field", "valid", "occluded", "depth", "hit"):
        torch.testing.assert_close(getattr(opaque, name), getattr(clear, name), rtol=0, atol=0)
    changed = ((opaque.image - clear.image).abs() > 0.1 * opaque.image).any(2)
    assert 0.005 < changed.float().mean() < 0.5


def test_other_light_changes_the_second_view_and_nothing_else():
    size = (24, 40)
    lit, relit = (rendered(replace(SMALL, relit=share), range(3), size) for share in (0.0, 1.0))
    for name in ("field", "valid", "occluded", "depth", "hit", "baseline"):
        torch.testing.assert_close(getattr(lit, name), getattr(relit, name), rtol=0, atol=0)
    # Exposure is common to both views: compare up to a factor.
    whole = (lit.image[:, 0] < 8.0) & (relit.image[:, 0] < 8.0)  # brighter highlights are clipped
    first, again = (r.image[:, 0] * whole for r in (lit, relit))
    first, again = (image / image.mean((1, 2, 3), keepdim=True) for image in (first, again))
    torch.testing.assert_close(first, again, rtol=0.02, atol=0.02)
    second, other = (r.image[:, 1] / r.image[:, 1].mean((1, 2, 3), keepdim=True) for r in (lit, relit))
    assert ((second - other).abs().mean((1, 2, 3)) > 0.05).all()


def test_a_row_error_moves_the_second_view_down():
    """Rows of the second view are lower by ``Scene.vertical``: what lies on row y of the first lies on y + 3 there."""
    config = replace(SMALL, layouts={"room": 1.0})
    scene = draw_scenes(config, 5, range(1), (40, 64))
    far = torch.full((1,), 1e-6)  # m: both cameras at one place
    straight, lowered = (
        rendering.two_views(scene._replace(vertical=torch.full((1,), rows)), far) for rows in (0.0, 3.0)
    )
    assert torch.equal(lowered.lenses[:, 0], straight.lenses[:, 0])
    torch.testing.assert_close(lowered.lenses[:, 1] - straight.lenses[:, 1], torch.tensor([[0.0, 0.0, 3.0]]))
    depth = {}
    for name, views in (("straight", straight), ("lowered", lowered)):
        ready = rendering.prepare(scene, views, config, photo_pyramid(None, torch.device("cpu")))
        depth[name], _ = rendering.cast(
            ready.tables, ready.cameras, (40, 64), rendering.sample_offsets(1, torch.device("cpu"))
        )
    torch.testing.assert_close(depth["lowered"][0, 1, 0, 3:], depth["straight"][0, 1, 0, :-3])


def test_rounding_hides_nothing(monkeypatch):
    """What the other view meets within half a thousandth of the depth is the point itself."""
    depth = torch.full((1, 2, 4, 6), 10.0)
    met = depth.clone()
    met[..., :3] *= 1 - 3e-4
    met[..., 3:] *= 1 - 8e-4
    monkeypatch.setattr(rendering, "cast", lambda *call: (met[:, :, None], None))
    nothing = torch.zeros(1, 2, 1)
    tables = RayTables(nothing, nothing, nothing, ())
    hidden = rendering._occluded(tables, nothing, (4, 6), torch.zeros(1, 2, 4, 6, 2), depth)
    assert not hidden[..., :3].any()
    assert hidden[..., 3:].all()


def test_the_shadows_bias_is_more_than_a_texel_and_a_small_part_of_the_distance():
    scene = draw_scenes(SMALL, 3, range(2), (16, 24))
    focal = torch.full((2, 2), 50.0)  # px: a texel is a fiftieth of the distance
    rotation, position = torch.eye(3).expand(2, 2, 3, 3), torch.zeros(2, 2, 3)
    table = rendering._ambience(scene.light, rotation, position, focal)
    share = table[..., AMBIENCE.index("shadow_bias")] / scene.light.reach
    assert (share > 1 / 50).all()
    assert (share < 2 / 50).all()
