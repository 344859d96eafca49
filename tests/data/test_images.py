"""Any image file becomes uint8 RGB, or a sentence."""

import numpy as np
import pytest
from PIL import Image

from matchattention.data.images import read_image
from matchattention.data.png import write_png16
from matchattention.errors import InputError

RGB = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


def check(path, expected, tolerance=0):
    image = read_image(path)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    np.testing.assert_allclose(image.astype(int), expected.astype(int), atol=tolerance)


@pytest.mark.parametrize("suffix", ["png", "bmp", "ppm", "tif"])
def test_lossless_colour(tmp_path, suffix):
    Image.fromarray(RGB).save(tmp_path / f"a.{suffix}")
    check(tmp_path / f"a.{suffix}", RGB)


def test_jpeg_of_a_flat_colour(tmp_path):
    flat = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    Image.fromarray(flat).save(tmp_path / "a.jpg", quality=95)
    check(tmp_path / "a.jpg", flat, tolerance=3)


def test_grey_is_repeated(tmp_path):
    Image.fromarray(RGB[..., 0]).save(tmp_path / "a.png")
    check(tmp_path / "a.png", RGB[..., :1].repeat(3, axis=2))


def test_transparency_is_dropped_without_blending(tmp_path):
    alpha = np.zeros((6, 8, 1), np.uint8)
    Image.fromarray(np.concatenate([RGB, alpha], axis=2)).save(tmp_path / "a.png")
    check(tmp_path / "a.png", RGB)
    Image.fromarray(np.concatenate([RGB[..., :1], alpha], axis=2), "LA").save(tmp_path / "b.png")
    check(tmp_path / "b.png", RGB[..., :1].repeat(3, axis=2))


def test_palette_is_looked_up(tmp_path):
    image = Image.fromarray(np.array([[0, 1], [1, 0]], np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.save(tmp_path / "a.png")
    check(tmp_path / "a.png", np.array([[[10, 20, 30], [40, 50, 60]], [[40, 50, 60], [10, 20, 30]]]))


def test_black_and_white(tmp_path):
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "a.png")
    check(tmp_path / "a.png", np.array([[[255] * 3, [0] * 3]]))


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_png(tmp_path, channels):
    deep = np.random.default_rng(1).integers(0, 65536, (6, 8, 3), np.uint16)
    write_png16(tmp_path / "a.png", deep[..., 0] if channels == 1 else deep)
    expected = deep / 257 if channels == 3 else deep[..., :1].repeat(3, axis=2) / 257
    check(tmp_path / "a.png", np.rint(expected), tolerance=1)


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bit_tiff(tmp_path, channels):
    cv2 = pytest.importorskip("cv2")
    deep = np.random.default_rng(1).integers(0, 65536, (6, 8, 3), np.uint16)
    cv2.imwrite(str(tmp_path / "a.tif"), deep[..., 0] if channels == 1 else deep[..., ::-1])
    expected = deep / 257 if channels == 3 else deep[..., :1].repeat(3, axis=2) / 257
    check(tmp_path / "a.tif", np.rint(expected), tolerance=1)


def test_exr_is_tone_mapped(tmp_path):
    exr = pytest.importorskip("OpenEXR")
    ramp = np.linspace(0, 5, 64, dtype=np.float32).reshape(8, 8)
    header = {"compression": exr.ZIP_COMPRESSION, "type": exr.scanlineimage}
    exr.File(header, {"R": ramp, "G": ramp, "B": ramp}).write(str(tmp_path / "a.exr"))
    image = read_image(tmp_path / "a.exr")
    assert image.shape == (8, 8, 3)
    assert (np.diff(image[..., 0].ravel().astype(int)) >= 0).all()
    assert (image[0, 0, 0], image[-1, -1, 0]) == (0, 255)


def test_rotation_tag_is_left_alone(tmp_path):
    image = Image.fromarray(RGB)
    tags = image.getexif()
    tags[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=tags)
    assert read_image(tmp_path / "a.jpg").shape == RGB.shape


def test_sentences(tmp_path):
    (tmp_path / "text.png").write_text("text")
    (tmp_path / "empty.png").write_bytes(b"")
    Image.fromarray(RGB).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:100])
    for name, words in {
        "none.png": "does not exist",
        "text.png": "not an image",
        "empty.png": "not an image",
        "cut.png": "cut short",
        ".": "folder",
    }.items():
        with pytest.raises(InputError, match=words):
            read_image(tmp_path / name)
