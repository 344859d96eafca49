"""16-bit PNG: bit-exact against other decoders, broken files refused."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matchattention.data.png import is_png16, read_png16, write_png16
from matchattention.errors import InputError

cv2 = pytest.importorskip("cv2")


def colour(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 65536, (height, width, 3), np.uint16)


def encode(image, filters):
    """A PNG whose lines use the given filters, each computed byte by byte as the specification words it."""
    height, width = image.shape[:2]
    channels = 1 if image.ndim == 2 else image.shape[2]
    depth = 2 * channels
    raw = image.astype(">u2").reshape(height, -1).view(np.uint8).astype(int)
    lines = bytearray()
    for y in range(height):
        kind = filters[y % len(filters)]
        lines.append(kind)
        for i in range(width * depth):
            left = raw[y, i - depth] if i >= depth else 0
            up = raw[y - 1, i] if y else 0
            corner = raw[y - 1, i - depth] if y and i >= depth else 0
            estimate = left + up - corner
            nearest = min((left, up, corner), key=lambda value: abs(estimate - value))
            predicted = (0, left, up, (left + up) // 2, nearest)[kind]
            lines.append((raw[y, i] - predicted) % 256)
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    packed = zlib.compress(bytes(lines))
    half = len(packed) // 2  # two IDAT chunks, as encoders of large images write
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", packed[:half])
        + chunk(b"IDAT", packed[half:])
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("filters", [[0], [1], [2], [3], [4], [0, 1], [4, 1, 3, 2, 0]], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 1, 3), (1, 9, 3), (11, 5, 3), (5, 13, 4)], ids=str)
def test_decodes_every_filter(tmp_path, filters, shape):
    # Smooth content makes predictions close, so that ties in Paeth's choice occur.
    image = np.add.outer(np.arange(shape[0]) * 300, np.arange(shape[1]) * 200)[..., None] + [0, 7, 300, 9][: shape[2]]
    image = (image % 65536).astype(np.uint16)
    path = tmp_path / "image.png"
    path.write_bytes(encode(image, filters))
    np.testing.assert_array_equal(read_png16(path), image)


@given(height=st.integers(1, 20), width=st.integers(1, 20), seed=st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_round_trip_of_any_size(tmp_path_factory, height, width, seed):
    path = tmp_path_factory.mktemp("png") / "image.png"
    for image in (colour(height, width, seed), colour(height, width, seed)[..., 0]):
        write_png16(path, image)
        np.testing.assert_array_equal(read_png16(path), image)


def test_agrees_with_opencv_both_ways(tmp_path):
    image = colour(23, 31)
    cv2.imwrite(str(tmp_path / "theirs.png"), image[..., ::-1])
    np.testing.assert_array_equal(read_png16(tmp_path / "theirs.png"), image)
    write_png16(tmp_path / "ours.png", image)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "ours.png"), cv2.IMREAD_UNCHANGED)[..., ::-1], image)
    write_png16(tmp_path / "grey.png", image[..., 0])
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "grey.png"), cv2.IMREAD_UNCHANGED), image[..., 0])


def test_knows_its_own_kind(tmp_path):
    write_png16(tmp_path / "deep.png", colour(3, 3))
    cv2.imwrite(str(tmp_path / "flat.png"), np.zeros((3, 3), np.uint8))
    assert is_png16(tmp_path / "deep.png")
    assert not is_png16(tmp_path / "flat.png")


def test_eight_bits_are_refused(tmp_path):
    cv2.imwrite(str(tmp_path / "image.png"), np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(InputError, match="8 bits"):
        read_png16(tmp_path / "image.png")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("keep", [0, 20, 40, 100])
def test_truncated_files_are_refused(tmp_path, keep, channels):
    path = tmp_path / "image.png"
    write_png16(path, colour(16, 16)[..., 0] if channels == 1 else colour(16, 16))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"image\.png"):
        read_png16(path)


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "image.png"
    write_png16(path, colour(16, 16))
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="broken"):
        read_png16(path)


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_png16(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("not a picture, but long enough to hold a header")
    with pytest.raises(InputError, match="not a PNG"):
        read_png16(tmp_path / "text.png")


@pytest.mark.parametrize("image", [np.zeros((2, 2), np.uint8), np.zeros((2, 2, 2), np.uint16), np.zeros(3, np.uint16)])
def test_writer_refuses_other_types_and_shapes(image, tmp_path):
    with pytest.raises(ValueError, match="expected uint16"):
        write_png16(tmp_path / "x.png", image)
    assert not list(tmp_path.iterdir())
