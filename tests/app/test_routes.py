"""The addresses behind the page, as a hostile client would try them."""

from __future__ import annotations

import io
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

import matchattention as ma
from tests.inference.oracle import TINY

pytest.importorskip("nicegui", reason="the page needs the extra 'app'")

from fastapi import FastAPI
from starlette.testclient import TestClient

from matchattention.app.result import compute
from matchattention.app.routes import add_routes, result_address, upload_address
from matchattention.app.session import Session, Sessions
from matchattention.app.uploads import Limits, open_photo
from matchattention.app.worker import Progress, Worker
from matchattention.examples import example
from matchattention.inference.predictor import Predictor


@pytest.fixture
def sessions():
    sessions = Sessions()
    yield sessions
    sessions.remove_all()


@pytest.fixture
def client(sessions: Sessions) -> Iterator[TestClient]:
    app = FastAPI()
    worker = Worker()
    add_routes(app, sessions, Limits(megabytes=0.2, megapixels=0.1), worker)
    yield TestClient(app, base_url="http://127.0.0.1:8000")
    worker.stop()


def _png(width: int = 96, height: int = 64) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG")
    return stored.getvalue()


def _post(client: TestClient, session: Session, slot: str, content: bytes, name: str = "photo.png"):
    return client.post(upload_address(session, slot), content=content, headers={"X-File-Name": quote(name)})


def test_a_photo_arrives(client: TestClient, sessions: Sessions) -> None:
    session = sessions.new()
    answer = _post(client, session, "left", _png(), "Büro links.png")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    photo = session.photos["left"]
    assert (photo.name, photo.width, photo.height) == ("Büro links.png", 96, 64)
    assert photo.path.parent == session.folder


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"x" * 200_001, "photo.png", "photo.png is larger than 0.2 MB"),
        (_png(400, 300)[:150_000], "photo.png", "0 megapixels, the page takes 0.1"),
        (b"text", "photo.png", "photo.png is not an image"),
        (b"", "photo.png", "photo.png is empty"),
        (_png(), "photo.svg", "photo.svg is of no kind that is read here"),
        (_png(), "", "is of no kind that is read here"),
    ],
    ids=["too many bytes", "too many pixels", "no image", "empty", "unknown kind", "no name"],
)
def test_what_cannot_be_taken_is_refused_and_not_kept(client, sessions, content: bytes, name: str, words: str) -> None:
    session = sessions.new()
    answer = _post(client, session, "left", content, name)
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert session.photos == {}
    assert list(session.folder.iterdir()) == []


def test_names_that_point_elsewhere_stay_inside(client: TestClient, sessions: Sessions, tmp_path: Path) -> None:
    session = sessions.new()
    target = tmp_path / "stolen.png"
    assert _post(client, session, "right", _png(), f"../../../..{target}").status_code == 200
    assert not target.exists()
    assert [path.name for path in session.folder.iterdir()] == ["right-1.png"]


def test_a_calibration_arrives(client: TestClient, sessions: Sessions) -> None:
    session = sessions.new()
    assert _post(client, session, "camera", b'{"fx": 451, "baseline": 0.075}', "oak.json").status_code == 200
    assert session.camera == ma.StereoCamera(fx=451, baseline=0.075)
    refused = _post(client, session, "camera", b"hello", "notes.txt")
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("notes.txt is not a calibration")
    assert session.camera_name == "oak.json"


def test_only_places_and_sessions_that_exist(client: TestClient, sessions: Sessions) -> None:
    session = sessions.new()
    assert _post(client, session, "password", _png()).status_code == 404
    sessions.close(session)
    answer = _post(client, session, "left", _png())
    assert answer.status_code == 404
    assert "reload" in answer.json()["error"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7:8000"])
def test_other_names_for_this_machine_are_refused(client: TestClient, sessions: Sessions, host: str) -> None:
    session = sessions.new()
    answer = client.post(
        upload_address(session, "left"), content=_png(), headers={"X-File-Name": "a.png", "Host": host}
    )
    assert answer.status_code == 400
    assert session.photos == {}


def test_a_result_is_served_to_its_own_page_only(client: TestClient, sessions: Sessions) -> None:
    mine, other = sessions.new(), sessions.new()
    for slot in ("left", "right"):
        assert _post(client, mine, slot, _png(160, 192)).status_code == 200
    predictor = Predictor(ma.create_model(TINY), "cpu")
    photos = mine.photos
    mine.result = compute(
        predictor, photos["left"].path, photos["right"].path, None, mine.new_folder(), Progress(), check=False
    )
    address = result_address(mine)
    shown = client.get(f"{address}/disparity.png")
    assert shown.status_code == 200
    assert "attachment" not in shown.headers.get("content-disposition", "")
    assert shown.headers["cache-control"] == "no-store"
    taken = client.get(f"{address}/disparity.pfm?download=true")
    assert taken.content == (mine.result.folder / "disparity.pfm").read_bytes()
    assert taken.headers["content-disposition"] == 'attachment; filename="disparity.pfm"'

    assert client.get(address.replace(mine.token, other.token) + "/disparity.pfm").status_code == 404
    assert client.get(address.replace(mine.token, "guess") + "/disparity.pfm").status_code == 404
    for name in ("..%2F..%2Fetc%2Fpasswd", "%2e%2e%2f" + photos["left"].path.name, photos["left"].path.name):
        assert client.get(f"{address}/{name}").status_code == 404
    mine.result = None
    assert client.get(f"{address}/disparity.pfm").status_code == 404


def test_a_replaced_photo_is_deleted(client: TestClient, sessions: Sessions) -> None:
    session = sessions.new()
    for name in ("first.png", "second.png"):
        assert _post(client, session, "left", _png(), name).status_code == 200
    for _ in range(100):
        if len(list(session.folder.iterdir())) == 1:
            break
        time.sleep(0.05)
    assert list(session.folder.iterdir()) == [session.photos["left"].path]


def test_a_bundled_example_is_never_deleted(client: TestClient, sessions: Sessions) -> None:
    files = example("donkey")
    session = sessions.new()
    session.photos["left"] = open_photo(files.left, "donkey", Limits())
    assert _post(client, session, "left", _png()).status_code == 200
    time.sleep(0.2)
    assert files.left.is_file()


def test_a_calibration_is_read_and_not_kept(client: TestClient, sessions: Sessions) -> None:
    session = sessions.new()
    assert _post(client, session, "camera", b'{"fx": 200, "baseline": 0.1}', "c.json").status_code == 200
    assert session.camera is not None
    assert list(session.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b" " * 300_000, "larger than 0.25 MB: a calibration has a few kB"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"fx": ' + b"9" * 5000 + b"}", "broken"),
    ],
    ids=["oversized", "nested", "digits"],
)
def test_calibrations_that_were_errors_500(client: TestClient, sessions: Sessions, content: bytes, words: str) -> None:
    session = sessions.new()
    answer = _post(client, session, "camera", content, "c.json")
    assert answer.status_code == 400
    assert words in answer.json()["error"]
    assert "c.json" in answer.json()["error"]
    assert list(session.folder.iterdir()) == []


def test_an_image_of_30000_by_30000(client: TestClient, sessions: Sessions) -> None:
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    answer = _post(client, sessions.new(), "left", b"\x89PNG\r\n\x1a\n" + body, "wall.png")
    assert answer.status_code == 400
    assert "wall.png has more than 178 megapixels" in answer.json()["error"]
