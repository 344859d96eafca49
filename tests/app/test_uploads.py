"""What a browser sends: names are only shown, sizes and pixels are counted before anything is decoded."""

from __future__ import annotations

import asyncio
import base64
import io
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchattention.app.session import Session
from matchattention.app.uploads import Limits, known_suffix, open_camera, open_photo, receive, shown_name
from matchattention.errors import InputError

HOSTILE = [
    "../../etc/passwd.png", "/etc/cron.d/x.png", "..\\..\\windows\\x.png", "a\x00b.png", "x" * 500 + ".png", ".png",
]  # fmt: skip


async def _chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize("name", HOSTILE)
def test_a_clients_name_never_leads_out_of_the_sessions_folder(name: str) -> None:
    session = Session()
    try:
        path = session.new_path("left", name)
        assert path.parent == session.folder
        assert path.resolve().parent == session.folder.resolve()
        assert path.name == "left-1.png"
    finally:
        session.remove()
    assert not session.folder.exists()


@pytest.mark.parametrize("name", [*HOSTILE, "", "ordinary.png"])
def test_shown_names_are_short_and_printable(name: str) -> None:
    shown = shown_name(name)
    assert 0 < len(shown) <= 60
    assert shown.isprintable()
    assert "/" not in shown
    assert "\\" not in shown


@pytest.mark.parametrize("name", ["photo.exe", "photo", "", "archive.png.zip"])
def test_unknown_kinds_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"give \.png"):
        known_suffix(name, (".png", ".jpg"))


def test_a_file_within_the_limit_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "left-1.png"
    asyncio.run(receive(_chunks(b"a" * 600, b"b" * 400), path, 0.001, "left.png"))
    assert path.read_bytes() == b"a" * 600 + b"b" * 400


@pytest.mark.parametrize(("parts", "words"), [([b"a" * 600, b"b" * 401], "larger than 0.001 MB"), ([], "empty")])
def test_too_much_or_nothing_leaves_no_file(tmp_path: Path, parts: list[bytes], words: str) -> None:
    path = tmp_path / "left-1.png"
    with pytest.raises(InputError, match=words):
        asyncio.run(receive(_chunks(*parts), path, 0.001, "left.png"))
    assert not path.exists()


def test_a_connection_that_breaks_leaves_no_file(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError

    path = tmp_path / "left-1.png"
    with pytest.raises(ConnectionError):
        asyncio.run(receive(broken(), path, 1, "left.png"))
    assert not path.exists()


def test_a_photo_has_its_size_and_a_small_preview(tmp_path: Path) -> None:
    path = tmp_path / "left-1.png"
    pixels = np.random.default_rng(0).integers(0, 256, (300, 1000, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    photo = open_photo(path, "C:\\pictures\\mine.png", Limits())
    assert (photo.name, photo.width, photo.height) == ("mine.png", 1000, 300)
    head, encoded = photo.preview.split(",")
    assert head == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(encoded))).size == (480, 144)


def _png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing: a decompression bomb's outside."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 64)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_png_header(5000, 4000), "5000x4000 = 20 megapixels, the page takes 16"),
        (_png_header(60_000, 60_000), "bomb.png"),
        (b"no image", "bomb.png is not an image"),
        (_png_header(64, 64), "bomb.png is broken, cut short"),
    ],
    ids=["20 megapixels", "3600 megapixels", "text", "cut short"],
)
def test_bad_images_are_refused_in_the_clients_words(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "left-1.png"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        open_photo(path, "bomb.png", Limits())
    assert words in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_a_bad_calibration_is_refused_in_the_clients_words(tmp_path: Path) -> None:
    path = tmp_path / "camera-1.txt"
    path.write_text("hello")
    with pytest.raises(InputError, match=r"^mine\.txt is not a calibration") as caught:
        open_camera(path, "mine.txt")
    assert str(tmp_path) not in str(caught.value)


def test_no_upload_starts_another_program(tmp_path: Path, monkeypatch) -> None:
    started = []
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *call: started.append(call))
    path = tmp_path / "left-1.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 48 32\n%%EndComments\n%%EOF\n")
    with pytest.raises(InputError, match="not an image"):
        open_photo(path, "left.png", Limits())
    assert not started
