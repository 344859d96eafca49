"""Every picture shows what it says."""

import numpy as np
import pytest
import torch

from matchattention import viz
from matchattention.layers.initial import Initial
from matchattention.models.network import Matches, Step
from matchattention.viz.scale_bar import nice_ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.12, 0.31, [0.15, 0.2, 0.25, 0.3]), (-1, 1, [-1, -0.5, 0, 0.5, 1]), (3, 3, [3])],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(expected)


def test_scale_bar_keeps_the_picture_and_shows_the_map_upside_up() -> None:
    picture = np.full((200, 120, 3), 77, np.uint8)
    with_bar = viz.with_scale_bar(picture, 0, 40, "px", "dusk")
    np.testing.assert_array_equal(with_bar[:, :120], picture)
    column = with_bar[:, 120 + 8].astype(int)
    dark = np.argmin(column.sum(axis=1))
    assert dark > 150  # low values at the foot
    # A plain white margin would be the same in every row.
    assert len(np.unique(with_bar[:, 120:].reshape(-1, 3), axis=0)) > 100


def test_disparity_is_brighter_when_nearer() -> None:
    ramp = np.broadcast_to(np.linspace(1, 60, 100, dtype=np.float32), (80, 100)).copy()
    ramp[0, 0] = np.inf
    picture = viz.disparity_picture(ramp, bar=False).astype(int).sum(-1)
    assert picture.shape == ramp.shape
    assert picture[0, 0] == 0
    assert (np.diff(picture[40, ::10]) > 0).all()


def test_depth_is_logarithmic_and_spares_unknown_pixels() -> None:
    depth = np.array([[1.0, 10.0, 100.0, np.inf, 0.0]] * 60)
    picture = viz.depth_picture(depth, 1, 100, bar=False)
    middle = viz.colormap("reef")[512].astype(int)
    np.testing.assert_allclose(picture[0, 1].astype(int), middle, atol=3)
    assert (picture[:, 3:] == 0).all()
    assert viz.depth_picture(depth).shape[1] > 5


def test_error_is_white_when_small_dark_when_large_and_marks_the_unknown() -> None:
    truth = np.zeros((60, 4))
    truth[:, 3] = np.inf
    predicted = np.zeros((60, 4))
    predicted[:, 1], predicted[:, 2] = 2.0, 100.0
    picture = viz.error_picture(predicted, truth, bar=False)[0].astype(int)
    assert picture[0].min() > 250
    assert picture[0].sum() > picture[1].sum() > picture[2].sum()
    assert tuple(picture[3]) == (96, 110, 130)
    flow = viz.error_picture(np.zeros((60, 4, 2)), np.full((60, 4, 2), 3.0), bar=True)
    assert flow.shape[0] == 60


def test_confidence_and_occlusion() -> None:
    confidence = np.array([[0.0, 1.0]] * 40)
    picture = viz.confidence_picture(confidence, bar=False).astype(int).sum(-1)
    assert (picture[:, 1] > picture[:, 0]).all()
    image = np.full((4, 4), 100, np.uint8)
    occluded = np.zeros((4, 4), bool)
    occluded[1, 2] = True
    overlay = viz.occlusion_overlay(image, occluded)
    assert (overlay[~occluded] == 100).all()
    assert overlay[1, 2, 0] > 150 > overlay[1, 2, 1]
    assert (image == 100).all()


def test_flow_colours_tell_directions_apart() -> None:
    flow = np.zeros((1, 6, 2), np.float32)
    flow[0, 1:5] = [(4, 0), (0, 4), (-4, 0), (0, -4)]
    flow[0, 5] = np.nan
    colours = viz.flow_picture(flow, longest=4, wheel=False)[0].astype(int)
    assert tuple(colours[0]) == (255, 255, 255)
    assert tuple(colours[5]) == (0, 0, 0)
    assert colours[1, 0] == 255  # right is red
    apart = np.abs(colours[1:5, None] - colours[None, 1:5]).sum(-1) + 1000 * np.eye(4, dtype=int)
    assert apart.min() > 200
    half = viz.flow_picture(flow / 2, longest=4, wheel=False)[0].astype(int)
    np.testing.assert_allclose(half[1], (colours[1] + 255) / 2, atol=1)


def test_flow_wheel_is_drawn_into_the_corner() -> None:
    plain = viz.flow_picture(np.zeros((200, 200, 2)), longest=5, wheel=False)
    wheeled = viz.flow_picture(np.zeros((200, 200, 2)), longest=5)
    assert (plain == 255).all()
    changed = (wheeled != 255).any(-1)
    assert changed[160:, 160:].any()
    assert not changed[:100].any()


def test_arrows_start_in_occlusions_and_point_the_right_way() -> None:
    image = np.zeros((60, 90, 3), np.uint8)
    positions = np.zeros((16, 24, 4, 2), np.float32)  # padded to 64x96: four rows on top, six columns on the right
    positions[..., 0] = 3.0  # 12 px to the right
    occlusion = np.zeros((60, 90), bool)
    occlusion[30:50, 30:50] = True
    drawn = viz.self_position_arrows(image, positions, occlusion=occlusion, spacing=24)
    background = drawn[0, 0]
    y, x = np.nonzero((drawn != background).any(-1))
    assert drawn.shape == (60, 90, 3)
    # The only grid point inside is (36, 36); its arrow ends twelve pixels to the right.
    assert 34 <= x.min() <= 36
    assert 47 <= x.max() <= 50
    assert abs(y.mean() - 36) < 1.5
    nowhere = viz.self_position_arrows(image, positions * 0, spacing=24)
    assert (nowhere == background).all()


def matches(height: int = 60, width: int = 90) -> Matches:
    """Constant fields whose disparity is 32 at 1/32, 16 at 1/16 and so on down to the final 10 to 20."""
    steps = []
    for scale in (32, 16, 8, 4):
        shape = (2, 64 // scale, 96 // scale, 2)
        position = torch.zeros(shape)
        position[0, ..., 0] = -1.0
        if scale != 32:
            steps.append(Step(scale, "self", position))
        steps += [Step(scale, kind, position) for kind in ("self", "cross", "self", "cross")]
    field = torch.zeros(2, height, width, 2)
    field[0, ..., 0] = -torch.linspace(10, 20, width)
    initial = Initial(torch.zeros(2, 2, 3, 2), None)
    return Matches(field, torch.zeros(2, 16, 24, 4, 2), tuple(steps), initial)


def test_evolution_names_every_step_and_crops_the_padding() -> None:
    frames = viz.evolution_frames(matches())
    captions = [caption for caption, _ in frames]
    assert captions[:5] == [
        "1/32, initial estimate",
        "1/32, block 1: self",
        "1/32, block 1: cross",
        "1/32, block 2: self",
        "1/32, block 2: cross",
    ]
    assert captions[5:8] == ["1/16, enlarged", "1/16, block 1: self", "1/16, block 1: cross"]
    assert captions[-1] == "full resolution"
    assert len(frames) == 1 + 4 * 4 + 3 + 1
    assert {picture.shape for _, picture in frames} == {(60, 90, 3)}
    np.testing.assert_array_equal(frames[1][1], viz.colourise(np.full((60, 90), 32.0), 10.1, 19.9))


def test_evolution_strip_and_animation(tmp_path) -> None:
    from PIL import Image

    strip = viz.evolution_strip(matches(), columns=3)
    assert strip.shape[1] == 3 * 90
    assert strip.shape[0] == 2 * (60 + 20)
    viz.write_evolution_gif(tmp_path / "evolution.gif", matches())
    with Image.open(tmp_path / "evolution.gif") as animation:
        assert animation.n_frames > 5
    flow = viz.evolution_frames(matches(), task="flow")
    assert flow[-1][1].shape == (60, 90, 3)


def test_pictures_are_written_in_the_suffix_format(tmp_path) -> None:
    from PIL import Image

    viz.write_picture(tmp_path / "mask.png", np.array([[True, False]]))
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "mask.png")), [[255, 0]])
    viz.write_picture(tmp_path / "colour.jpg", np.zeros((8, 8, 3), np.uint8))
    assert Image.open(tmp_path / "colour.jpg").format == "JPEG"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["colour.jpg", "mask.png"]


def test_ticks_stand_beside_the_colours_of_their_values() -> None:
    picture = np.full((200, 120, 3), 77, np.uint8)
    rows = []
    for tick in (0.0, 10.0, 40.0):
        margin = viz.with_scale_bar(picture, 0, 40, "", "dusk", ticks=[tick], words=lambda value: "")[:, 120:]
        (y,) = np.unique(np.nonzero((margin == 30).all(-1))[0])
        rows.append(y)
        bar = margin[y, 8].astype(int)
        np.testing.assert_allclose(bar, viz.colormap("dusk")[round(tick / 40 * 1023)].astype(int), atol=8)
    assert rows[0] > rows[1] > rows[2]


def test_flow_hues_go_round_from_right_over_down() -> None:
    flow = np.array([[(4, 0), (0, 4), (-4, 0), (0, -4)]], np.float32)
    red, yellow, green, violet = viz.flow_picture(flow, longest=4, wheel=False)[0].astype(int)
    assert red.argmax() == 0
    assert yellow.argmin() == 2
    assert green.argmin() == 0
    assert violet.argmax() == 2


def test_evolution_leaves_out_the_padding_at_the_top() -> None:
    some = matches()
    position = torch.zeros(2, 2, 3, 2)
    position[0, 0, :, 0], position[0, 1, :, 0] = -0.34, -0.6  # 10.9 and 19.2 px
    frames = viz.evolution_frames(some._replace(initial=Initial(position, None)))
    rows = frames[0][1][:, 0].astype(int)  # (60, 3)
    assert (rows[:28] == rows[0]).all()
    assert (rows[28:] == rows[59]).all()
    assert (rows[0] != rows[59]).any()


def test_arrows_belong_to_the_pixels_below_the_padding() -> None:
    positions = np.zeros((16, 24, 1, 2), np.float32)
    positions[10, 9] = (3.0, 0.0)  # the token of pixel (36, 36): four padded rows are above it
    drawn = viz.self_position_arrows(np.zeros((60, 90, 3), np.uint8), positions, spacing=24)
    y, x = np.nonzero((drawn != drawn[0, 0]).any(-1))
    assert abs(y.mean() - 36) < 1.5
    assert x.min() >= 34
