"""`POST /depth`: two files in, one file out."""

from __future__ import annotations

import io

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.serve.conftest import Network, answer, pair, running

CAMERA = {"fx": "100", "baseline": "0.2", "doffs": "1"}
PLAIN = {"check": "false"}


def file_of(image: np.ndarray, kind: str = "PNG") -> bytes:
    stored = io.BytesIO()
    Image.fromarray(image).save(stored, kind)
    return stored.getvalue()


def post(address: str, left: bytes, right: bytes, **fields: str) -> httpx.Response:
    return httpx.post(f"http://{address}/depth", files={"left": left, "right": right}, data=PLAIN | fields)


def test_depth_in_millimetres(address: str) -> None:
    left, right = pair()
    reply = post(address, file_of(left), file_of(right), **CAMERA)
    assert reply.status_code == 200
    assert (reply.headers["x-quantity"], reply.headers["x-unit"]) == ("depth", "mm")
    got = np.asarray(Image.open(io.BytesIO(reply.content)))
    assert got.dtype == np.uint16
    expected = 1000 * 100 * 0.2 / (left[..., 2] / 4 + 1)
    np.testing.assert_array_equal(got, np.rint(expected))


def test_npy_keeps_metres_and_unknown_pixels(address: str) -> None:
    left, right = pair()
    reply = post(address, file_of(left), file_of(right), format="npy", min_confidence="0.5", **CAMERA)
    got = np.load(io.BytesIO(reply.content))
    unsure = left[..., 1] / np.float32(255) < 0.5
    np.testing.assert_array_equal(np.isnan(got), unsure)
    np.testing.assert_allclose(got[~unsure], (100 * 0.2 / (left[..., 2] / 4 + 1))[~unsure], rtol=1e-6)


def test_disparity_without_a_camera(address: str) -> None:
    left, right = pair()
    expected = answer(left, right).disparity
    png = post(address, file_of(left), file_of(right))
    assert (png.headers["x-quantity"], png.headers["x-unit"]) == ("disparity", "px/256")
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png.content))) / 256, expected)
    as_json = post(address, file_of(left), file_of(right), format="json").json()
    np.testing.assert_allclose(np.array(as_json["values"], float), expected, atol=1e-4)


def test_swapped_views_are_said(address: str) -> None:
    from matchattention import examples

    example = examples.example()
    left, right = (
        np.asarray(Image.open(path).convert("RGB").resize((160, 120))) for path in (example.right, example.left)
    )
    files = {"left": file_of(left), "right": file_of(right)}
    reply = httpx.post(f"http://{address}/depth", files=files)
    assert reply.status_code == 400
    assert "swapped" in reply.json()["error"] or "swap" in reply.json()["error"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fx": "100"}, "needs 'fx'"),
        ({"fx": "far", "baseline": "1"}, "not a number"),
        ({"fx": "-1", "baseline": "1"}, "must be positive"),
        ({"fx": "nan", "baseline": "1"}, "not finite"),
        ({"format": "gif"}, "no format 'gif'"),
        ({"focal": "100"}, "no field 'focal'"),
        ({"check": "maybe"}, "true or false"),
        ({"min_confidence": "7"}, "from 0 to 1, not 7"),
        ({"min_confidence": "nan"}, "from 0 to 1"),
    ],
)
def test_wrong_fields(address: str, fields: dict[str, str], words: str) -> None:
    left, right = map(file_of, pair())
    reply = post(address, left, right, **fields)
    assert reply.status_code == 400
    assert words in reply.json()["error"]


def test_wrong_files(address: str) -> None:
    left, right = pair()
    good = file_of(left)
    assert "not an image" in post(address, good, b"nonsense").json()["error"]
    assert "not an image" in post(address, good[: len(good) // 2], file_of(right)).json()["error"]
    assert "one colour" in post(address, file_of(0 * left), good).json()["error"]
    assert "same size" in post(address, good, file_of(right[:20])).json()["error"]
    assert "two image files" in httpx.post(f"http://{address}/depth", files={"left": good}).json()["error"]
    assert "two image files" in httpx.post(f"http://{address}/depth", content=b"x").json()["error"]
    broken = httpx.post(
        f"http://{address}/depth", content=b"--", headers={"Content-Type": "multipart/form-data; boundary=b"}
    )
    assert broken.status_code == 400
    no_boundary = httpx.post(f"http://{address}/depth", content=b"--", headers={"Content-Type": "multipart/form-data"})
    assert no_boundary.status_code == 400


def test_sixteen_bits_are_not_cut_off(address: str) -> None:
    """Pillow reads them with 32 bits and, asked for colour, takes whatever is above 255 for white."""
    levels = pair()[0][..., 0].astype(">u2") * 257
    pgm = b"P5 48 32 65535\n" + levels.tobytes()
    got = np.load(io.BytesIO(post(address, pgm, pgm, format="npy").content))
    np.testing.assert_array_equal(got, pair()[0][..., 0] / 4)


def test_no_file_starts_another_program(address: str, monkeypatch) -> None:
    started = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *call: started.append(call))
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 48 32\n%%EndComments\n%%EOF\n"
    assert "not an image" in post(address, eps, eps).json()["error"]
    assert not started


def test_pixels_are_counted_before_decoding(address: str) -> None:
    black = file_of(np.zeros((4000, 4000), np.uint8))  # 16 megapixels in a few kB
    reply = post(address, black, black)
    assert reply.status_code == 413
    assert "16.0 megapixels" in reply.json()["error"]


def test_a_flow_model_says_where_to_send_frames() -> None:
    image = file_of(pair()[0])
    with running(Network(), model=("rt-flow", "flow")) as address:
        reply = post(address, image, image)
    assert reply.status_code == 404
    assert "rt-flow finds flow: use /v2/models/rt-flow/infer" in reply.json()["error"]
