"""The pair check finds swapped, shifted, rotated and clashing views, and stays silent on pairs in order."""

import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from matchattention.errors import InputError, InputWarning
from matchattention.geometry import check_pair, judge_pair, pair_check
from tests.geometry.pictures import pair, texture

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def shifted_up(image: np.ndarray, pixels: int) -> np.ndarray:
    return np.concatenate([image[pixels:], np.repeat(image[-1:], pixels, axis=0)])


def test_a_pair_in_order_says_nothing(recwarn) -> None:
    left, right, _ = pair()
    report = judge_pair(left, right)
    assert report.sentences() == []
    assert len(recwarn) == 0
    assert report.matches > 100
    assert -21 < report.horizontal_shift < -7
    assert abs(report.vertical_shift) < 0.05


def test_swapped_views_are_refused() -> None:
    left, right, _ = pair()
    with pytest.raises(InputError, match=r"swapped.*left image first"):
        judge_pair(right, left)


@pytest.mark.parametrize("pixels", [3, 5, 20])
def test_vertical_shift_is_measured_and_refused(pixels: int) -> None:
    left, right, _ = pair()
    report = check_pair(left, shifted_up(right, pixels))
    assert report.vertical_shift == pytest.approx(-pixels, abs=0.1)
    with pytest.raises(InputError, match="rectif"):
        judge_pair(left, shifted_up(right, pixels))


def test_a_small_vertical_shift_warns_only() -> None:
    left, right, _ = pair()
    with pytest.warns(InputWarning, match="rectified"):
        judge_pair(left, shifted_up(right, 2))


def test_a_rotated_camera_is_refused() -> None:
    from PIL import Image

    left, right, _ = pair()
    rotated = np.asarray(Image.fromarray(right).rotate(2.0, resample=Image.Resampling.BILINEAR))
    with pytest.raises(InputError, match="rectif"):
        judge_pair(left, rotated)


def test_exposure_clash_warns_with_its_ratio() -> None:
    left, right, _ = pair()
    with pytest.warns(InputWarning, match=r"2\.\d times darker"):
        judge_pair(left, (right * 0.45).astype(np.uint8))


def test_two_different_scenes_warn() -> None:
    left, _, _ = pair()
    with pytest.warns(InputWarning, match="same scene"):
        judge_pair(left, np.repeat(texture(200, 320, seed=99)[..., None], 3, 2))


@pytest.mark.parametrize("black", ["left", "right"])
def test_a_black_image_is_named(black: str) -> None:
    left, right, _ = pair()
    images = {"left": left, "right": right, black: np.zeros_like(left)}
    with pytest.raises(InputError, match=f"The {black} image is one colour"):
        judge_pair(images["left"], images["right"])


def test_the_same_image_twice_is_refused() -> None:
    left, _, _ = pair()
    with pytest.raises(InputError, match="the same"):
        judge_pair(left, left.copy())


def test_the_check_is_cheap() -> None:
    """A twelfth of a 640x480 pair on two cores: it was 0.5 to 0.9 s of one core."""
    left, right, _ = pair(480, 640)
    check_pair(left, right)  # whatever is set up once
    spent = []
    for _ in range(3):
        start = time.thread_time()
        check_pair(left, right)
        spent.append(time.thread_time() - start)
    assert min(spent) < 0.15


def test_different_sizes() -> None:
    left, right, _ = pair()
    with pytest.raises(InputError, match="320x200 and 300x200"):
        check_pair(left, right[:, :300])


def test_too_little_to_judge_is_silence_not_alarm() -> None:
    ramp = np.broadcast_to(np.linspace(0, 255, 320).astype(np.uint8), (200, 320))
    report = check_pair(ramp, ramp)
    assert not report.conclusive
    assert report.sentences() == []
    assert check_pair(ramp[:20, :20], ramp[:20, :20]).sentences() == []


@pytest.mark.parametrize("scene", ["MotorcycleE", "PianoL", "Playtable", "Jadeplant"])
def test_real_pairs(scene: str) -> None:
    folder = SHARED / "MiddEval3" / "trainingQ" / scene
    if not folder.is_dir():
        pytest.skip("the shared evaluation pairs are not here")
    from matchattention.data.images import read_image

    left, right = read_image(folder / "im0.png"), read_image(folder / "im1.png")
    report = check_pair(left, right)
    assert not any([report.swapped, report.vertical_doubt, report.unrelated])
    assert report.exposure_clash == (scene == "MotorcycleE")
    assert check_pair(right, left).swapped
    assert check_pair(left, shifted_up(right, 5)).vertical_problem


def test_large_images_are_measured_in_their_own_pixels() -> None:
    left, right, _ = pair(480, 960, far=24, near=42)  # measured at 640 px
    report = check_pair(left, shifted_up(right, 6))
    assert report.vertical_shift == pytest.approx(-6, abs=0.3)
    assert -43 < report.horizontal_shift < -23


def test_corners_have_texture_in_both_directions():
    """Waves of seven pixels: over each 7x7 the squared differences are the same everywhere."""
    wave = torch.sin(2 * math.pi / 7 * torch.arange(154.0))
    square = 2 * math.sin(2 * math.pi / 7) ** 2  # of the neighbours on either side, of a wave one high
    for across, down, found in ((5.0, 5.0, True), (3.0, 3.0, False), (100.0, 0.0, False), (100.0, 5.0, True)):
        heights = [math.sqrt(wanted / square) for wanted in (across, down)]
        corners = pair_check._corners(heights[0] * wave[None] + heights[1] * wave[:, None])
        assert bool(len(corners)) == found, (across, down)
