"""Every kind of image users bring."""

import numpy as np
import pytest
import torch
from PIL import Image

from matchattention.data.png import write_png16
from matchattention.errors import InputError
from matchattention.inference.images import read_pair, read_side_by_side, split_side_by_side
from matchattention.inference.predictor import Predictor
from tests.inference.oracle import Oracle

generator = np.random.default_rng(0)
COLOUR = generator.integers(0, 256, (20, 30, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(COLOUR, COLOUR, id="colour"),
        pytest.param(GREY, GREY[..., None], id="grey"),
        pytest.param(GREY[..., None], GREY[..., None], id="grey-with-axis"),
        pytest.param(np.dstack([COLOUR, GREY]), COLOUR, id="alpha"),
        pytest.param(COLOUR.astype(np.uint16) * 257, COLOUR, id="16-bit"),
        pytest.param(COLOUR.astype(np.uint16) * 16, COLOUR, id="12-bit-in-16"),
        pytest.param(Image.fromarray(COLOUR), COLOUR, id="pillow"),
        pytest.param(Image.fromarray(GREY), GREY[..., None], id="pillow-grey"),
        pytest.param(Image.fromarray(COLOUR).convert("RGBA"), COLOUR, id="pillow-alpha"),
        pytest.param(Image.fromarray(GREY).convert("LA"), GREY[..., None], id="pillow-grey-alpha"),
        pytest.param(Image.fromarray(GREY).convert("P"), GREY[..., None], id="pillow-palette"),
        pytest.param(Image.fromarray(GREY.astype(np.int32) * 257), GREY[..., None], id="pillow-32-bit"),
        pytest.param(COLOUR / 255, COLOUR, id="float64"),
        pytest.param((COLOUR / 255).astype(np.float32), COLOUR, id="float32"),
        pytest.param((GREY / 255).astype(np.float16), GREY[..., None], id="grey-float16"),
        pytest.param(torch.from_numpy(COLOUR).permute(2, 0, 1), COLOUR, id="tensor"),
        pytest.param(COLOUR[::-1, ::-1], COLOUR[::-1, ::-1], id="negative-strides"),
    ],
)
def test_kinds(given, expected) -> None:
    left, right = read_pair(given, given)
    assert left.dtype == np.uint8
    assert left.shape == (20, 30, 3)
    assert left.flags["C_CONTIGUOUS"]
    np.testing.assert_allclose(left, np.broadcast_to(expected, left.shape), atol=1)
    np.testing.assert_array_equal(left, right)


def test_sixteen_bit_files_keep_the_ratio_of_the_two_views(tmp_path) -> None:
    write_png16(tmp_path / "left.png", COLOUR.astype(np.uint16) * 16)
    write_png16(tmp_path / "right.png", COLOUR.astype(np.uint16) * 8)
    left, right = read_pair(tmp_path / "left.png", str(tmp_path / "right.png"))
    np.testing.assert_allclose(left, COLOUR, atol=1)
    np.testing.assert_allclose(right, COLOUR / 2, atol=1)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        pytest.param(COLOUR, COLOUR[:, :28], "30x20 and the right one 28x20", id="sizes"),
        pytest.param(COLOUR[:1, :1], COLOUR[:1, :1], "too small", id="1x1"),
        pytest.param(COLOUR[:15], COLOUR[:15], "too small", id="15-rows"),
        pytest.param(COLOUR / 1.0, COLOUR / 1.0, r"floats reach from 0 to 255: give them in \[0, 1\]", id="float"),
        pytest.param(COLOUR * np.nan, COLOUR / 255, "floats reach from nan", id="nan"),
        pytest.param(COLOUR.astype(np.int64), COLOUR, "dtype int64", id="integers"),
        pytest.param(torch.from_numpy(COLOUR)[None], COLOUR, "give both views as tensors", id="batch-and-array"),
        pytest.param(COLOUR, COLOUR.astype(np.uint16), "one depth", id="mixed-depth"),
        pytest.param(COLOUR.transpose(2, 0, 1), COLOUR, "channels last", id="channels-first"),
        pytest.param("nowhere.png", COLOUR, "does not exist", id="missing"),
        pytest.param(None, COLOUR, "dtype object", id="none"),
    ],
)
def test_refusals(left, right, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pair(left, right)


@pytest.mark.parametrize("pair", ["left.png", ("left.png",), (COLOUR,) * 3, None], ids=["path", "one", "three", "none"])
def test_an_entry_of_many_pairs_that_is_none(pair) -> None:
    predict = Predictor(Oracle(), device="cpu", check=False)  # type: ignore[arg-type]
    for match in (predict.batch, lambda pairs: list(predict.stream(pairs))):
        with pytest.raises(InputError, match=r"Each pair is \(left, right\)"):
            match([pair])


def test_side_by_side() -> None:
    wide = np.concatenate([np.tile(COLOUR, (1, 2, 1)), np.tile(COLOUR[::-1], (1, 2, 1))], axis=1)
    left, right = split_side_by_side(wide, "both.png")
    np.testing.assert_array_equal(left[:, :30], COLOUR)
    np.testing.assert_array_equal(right[:, :30], COLOUR[::-1])
    with pytest.raises(InputError, match="two views"):
        split_side_by_side(wide[:, :-1], "both.png")


def test_a_brightest_value_of_256_needs_more_than_eight_bits():
    image = np.full((20, 24, 3), 256, np.uint16)
    left, _ = read_pair(image, image)
    assert (left == 64).all()  # of 1023


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm", ".ppm", "-colour.png", "-colour.tif"])
@pytest.mark.parametrize("side_by_side", [False, True])
def test_twelve_bits_in_sixteen_keep_their_grey_levels(tmp_path, suffix: str, side_by_side: bool) -> None:
    """128 levels up to 4064: read as 16 bits they would become 17."""
    ramp = np.tile(np.arange(0, 4096, 32, dtype=np.uint16), (32, 1))
    if suffix == ".ppm" or "colour" in suffix:
        ramp = np.dstack([ramp] * 3)
    both = np.concatenate([ramp, ramp], axis=1)
    for name, image in (("left", ramp), ("right", ramp), ("both", both)):
        path = tmp_path / f"{name}{suffix}"
        if suffix.endswith(".png"):
            write_png16(path, image)
        elif suffix == ".ppm":
            path.write_bytes(b"P6\n%d %d\n65535\n" % image.shape[1::-1] + image.astype(">u2").tobytes())
        elif suffix == "-colour.tif":
            pytest.importorskip("cv2").imwrite(str(path), image)
        else:
            Image.fromarray(image).save(path)
    if side_by_side:
        views = read_side_by_side(tmp_path / f"both{suffix}")
    else:
        views = read_pair(tmp_path / f"left{suffix}", tmp_path / f"right{suffix}")
    for view in views:
        assert len(np.unique(view)) == 128
