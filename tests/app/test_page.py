"""The page in a real browser: what people do, and what they read when it does not work."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from matchattention.data.formats import read_pfm
from matchattention.examples import example
from matchattention.geometry.camera import StereoCamera
from tests.app.conftest import MEGABYTES
from tests.cli.conftest import write_pair

DESKTOP = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SLOW = 60_000  # ms: other work may share this machine


class Visit:
    """An open page that remembers what it asked for and what went wrong."""

    def __init__(self, browser, address: str, **options) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(SLOW)
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("websocket", lambda socket: self._asked(socket.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda line: self.complaints.append(line.text) if line.type == "error" else None)
        self.page.goto(address)
        self.page.get_by_role("button", name="Compute depth").wait_for()

    def _asked(self, url: str) -> None:
        if urlsplit(url).scheme not in ("data", "blob"):
            self.hosts.add(urlsplit(url).hostname or url)

    def give(self, slot: str, path: Path | str) -> None:
        self.page.get_by_label(slot, exact=True).set_input_files(str(path))
        self.page.locator(".drop-zone.filled", has_text=Path(path).name).wait_for()

    def give_pair(self, left: str, right: str) -> None:
        self.give("Left photo", left)
        self.give("Right photo", right)

    def compute(self) -> None:
        self.page.get_by_role("button", name="Compute depth").click()
        self.wait_for_result()

    def wait_for_result(self) -> None:
        self.page.locator(".viewer[data-ready=true]").wait_for()

    def message(self) -> str:
        alert = self.page.get_by_role("alert")
        alert.wait_for()
        return alert.inner_text()

    def point_at(self, x: int, y: int, size: tuple[int, int]) -> str:
        """The readout with the pointer on a pixel."""
        stage = self.page.locator(".viewer-stage")
        stage.scroll_into_view_if_needed()
        box = stage.bounding_box()
        share_x, share_y = (x + 0.5) / size[0], (y + 0.5) / size[1]
        self.page.mouse.move(box["x"] + share_x * box["width"], box["y"] + share_y * box["height"])
        return self.page.locator(".viewer-readout").inner_text()

    def download(self, name: str, folder: Path) -> Path:
        with self.page.expect_download() as waiting:
            self.page.get_by_text(name, exact=True).click()
        assert waiting.value.suggested_filename == name
        waiting.value.save_as(folder / name)
        return folder / name


@pytest.fixture
def visit(browser, address):
    visits: list[Visit] = []

    def open_page(**options) -> Visit:
        visits.append(Visit(browser, address, **(options or DESKTOP)))
        return visits[-1]

    yield open_page
    for visit in visits:
        visit.context.close()
        assert visit.hosts == {"127.0.0.1"}
        assert visit.complaints == []


def test_the_example_in_one_click(visit, tmp_path) -> None:
    here = visit()
    here.page.get_by_role("button", name="donkey").click()
    here.wait_for_result()

    disparity = read_pfm(here.download("disparity.pfm", tmp_path))
    assert disparity.shape == (460, 608)
    camera = StereoCamera.from_file(example("donkey").camera)
    for x, y in ((300, 200), (17, 400), (590, 33)):
        words = here.point_at(x, y, (608, 460))
        found = re.fullmatch(rf"x {x}, y {y}: ([\d.]+) px · ([\d.]+|∞) m · confidence (\d+) %.*", words)
        assert found, words
        assert float(found[1]) == pytest.approx(disparity[y, x], abs=0.006)
        assert float(found[2].replace("∞", "inf")) == pytest.approx(float(camera.depth(disparity)[y, x]), rel=0.01)

    assert Image.open(here.download("disparity.png", tmp_path)).height == 460
    ply = here.download("cloud.ply", tmp_path).read_bytes()
    assert ply.startswith(b"ply\nformat binary_little_endian")


def test_depth_in_colours_with_a_camera_only(visit, tmp_path) -> None:
    here = visit()
    here.page.get_by_role("button", name="donkey").click()
    here.wait_for_result()
    here.page.get_by_role("button", name="Depth", exact=True).click()
    here.page.get_by_text("m on a logarithmic scale, bright is far").wait_for()
    here.page.locator("img[src*='view_depth.png']").wait_for()
    here.page.get_by_role("button", name="Remove the camera file").click()
    here.compute()
    here.page.get_by_text("px, bright is near").wait_for()
    assert here.page.get_by_role("button", name="Depth", exact=True).count() == 0


def test_a_long_computation_can_be_cancelled(visit, tmp_path) -> None:
    here = visit()
    tile = np.random.default_rng(0).integers(0, 256, (150, 200), dtype=np.uint8)
    for name, shift in (("left.png", 0), ("right.png", 1)):
        picture = np.kron(np.roll(tile, -shift, 1), np.ones((20, 20), np.uint8))  # 12 megapixels
        Image.fromarray(picture).save(tmp_path / name)
    here.give_pair(str(tmp_path / "left.png"), str(tmp_path / "right.png"))
    here.page.get_by_role("button", name="Compute depth").click()
    here.page.get_by_role("button", name="Cancel").click()
    here.page.locator(".status").wait_for(state="hidden")
    assert not here.page.get_by_role("alert").is_visible()
    assert here.page.locator(".viewer[data-ready=true]").count() == 0
    here.page.get_by_role("button", name="donkey").click()  # the page goes on
    here.wait_for_result()


@pytest.mark.parametrize(("origin", "status"), [("https://evil.example", 400), ("http://127.0.0.1:1", 400)])
def test_foreign_pages_get_no_socket(address, origin: str, status: int) -> None:
    url = f"{address}/_nicegui_ws/socket.io/?EIO=4&transport=polling"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, headers={"Origin": origin}))
    assert caught.value.code == status
    own = urllib.request.urlopen(urllib.request.Request(url, headers={"Origin": address}))
    assert own.status == 200
    assert own.headers["Access-Control-Allow-Origin"] == address


def test_layers_and_slider(visit) -> None:
    here = visit()
    here.page.get_by_role("button", name="workbench").click()
    here.wait_for_result()
    layer = here.page.locator(".viewer-layer")
    pictures = set()
    for name, legend in (
        ("Confidence", "bright is certain"), ("Occlusion", "red: not seen"), ("Right", "compare"), ("Disparity", "px"),
    ):  # fmt: skip
        here.page.get_by_role("button", name=name, exact=True).click()
        here.page.locator(".viewer-legend", has_text=legend).wait_for()
        pictures.add(layer.get_attribute("src"))
        here.page.wait_for_function("document.querySelector('.viewer-layer').naturalWidth === 608")
    assert len(pictures) == 4

    stage, handle = here.page.locator(".viewer-stage"), here.page.get_by_role("slider")
    stage.scroll_into_view_if_needed()
    box, grip = stage.bounding_box(), handle.bounding_box()
    here.page.mouse.move(grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2)
    here.page.mouse.down()
    here.page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 20, steps=3)
    here.page.mouse.up()
    assert handle.get_attribute("aria-valuenow") == "75"
    handle.focus()
    here.page.keyboard.press("ArrowLeft")
    assert handle.get_attribute("aria-valuenow") == "73"


def test_the_cloud_turns_with_the_mouse(visit, tmp_path) -> None:
    here = visit()
    left, right = write_pair(tmp_path)
    here.give_pair(left, right)
    here.compute()
    canvas = here.page.locator(".cloud canvas")
    canvas.scroll_into_view_if_needed()
    here.page.wait_for_timeout(1500)  # a few frames
    before = _pixels(canvas, tmp_path / "before.png")
    assert len(np.unique(before.reshape(-1, 3), axis=0)) > 20  # points of many greys, not an empty box
    box = canvas.bounding_box()
    here.page.mouse.move(box["x"] + 200, box["y"] + 200)
    here.page.mouse.down()
    here.page.mouse.move(box["x"] + 330, box["y"] + 230, steps=5)
    here.page.mouse.up()
    here.page.wait_for_timeout(1500)
    assert np.mean(np.any(_pixels(canvas, tmp_path / "after.png") != before, axis=-1)) > 0.01


def _pixels(element, path: Path) -> np.ndarray:
    element.screenshot(path=str(path))
    return np.asarray(Image.open(path).convert("RGB"))


def test_own_photos_and_what_is_said_of_swapped_ones(visit, tmp_path) -> None:
    here = visit()
    left, right = write_pair(tmp_path)
    assert here.page.get_by_role("button", name="Compute depth").is_disabled()
    here.give_pair(left, right)
    here.compute()
    assert " m" not in here.point_at(80, 48, (160, 96))
    assert here.page.get_by_text("a 53° wide view is assumed").is_visible()

    here.page.get_by_role("button", name="Swap").click()
    here.page.get_by_role("button", name="Compute depth").click()
    assert "The views look swapped" in here.message()
    assert here.page.locator(".viewer").is_hidden()
    here.page.get_by_role("checkbox", name="Check the pair first").click()
    here.compute()
    assert here.page.get_by_role("alert").is_hidden()


def test_a_dropped_file_and_a_camera_file(visit, tmp_path) -> None:
    here = visit()
    left, right = write_pair(tmp_path)
    content = list(Path(left).read_bytes())
    here.page.evaluate(
        """([bytes, name]) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], name));
            document.querySelector(".drop-zone").dispatchEvent(new DragEvent("drop", {dataTransfer: transfer}));
        }""",
        [content, "dropped.png"],
    )
    here.page.locator(".drop-zone.filled", has_text="dropped.png, 160x96").wait_for()
    here.give("Right photo", right)
    calibration = tmp_path / "mine.json"
    calibration.write_text('{"fx": 200, "baseline": 0.1}')
    here.give("Camera file", calibration)
    here.compute()
    assert re.search(r" px · ([\d.]+|∞) m · ", here.point_at(80, 48, (160, 96)))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("notes.png", b"hello", "notes.png is not an image that can be read"),
        ("huge.png", bytes(int(MEGABYTES * 1e6) + 1), "huge.png is larger than 0.5 MB"),
        ("photo.svg", b"<svg/>", "photo.svg is of no kind that is read here"),
        ("<b>bold.png", b"", "<b>bold.png is empty"),
    ],
    ids=["no image", "too large", "unknown kind", "markup in the name"],
)
def test_bad_files_are_answered_in_words(visit, tmp_path, name: str, content: bytes, words: str) -> None:
    here = visit()
    file = {"name": name, "mimeType": "image/png", "buffer": content}
    here.page.get_by_label("Left photo", exact=True).set_input_files(file)
    assert words in here.message()
    assert here.page.locator("b").count() == 0
    here.complaints = [line for line in here.complaints if "400 (Bad Request)" not in line]  # Chromium logs the answer


def test_photos_of_different_sizes_are_answered_in_words(visit, tmp_path) -> None:
    here = visit()
    left, right = write_pair(tmp_path)
    Image.open(right).crop((0, 0, 150, 96)).save(right)
    here.give_pair(left, right)
    here.page.get_by_role("button", name="Compute depth").click()
    assert "The left image is 160x96 and the right one 150x96" in here.message()


def test_people_do_not_see_each_others_results(visit, tmp_path) -> None:
    mine, other = visit(), visit()
    mine.give_pair(*write_pair(tmp_path))
    mine.compute()
    assert other.page.locator(".viewer").is_hidden()
    assert other.page.locator(".drop-zone.filled").count() == 0
    sources = [page.locator(".drop-zone").first for page in (mine.page, other.page)]
    assert sources[0].inner_html() != sources[1].inner_html()
    other.give_pair(*write_pair(tmp_path / "other", seed=5))
    other.compute()
    addresses = [visit.page.locator(".viewer-layer").get_attribute("src") for visit in (mine, other)]
    secrets = [address.split("/")[2] for address in addresses]
    assert secrets[0] != secrets[1]
    assert min(len(secret) for secret in secrets) >= 32


def test_the_page_fits_a_phone(visit, tmp_path) -> None:
    here = visit(**PHONE)
    here.page.get_by_role("button", name="donkey").click()
    here.wait_for_result()
    here.page.wait_for_timeout(500)
    assert here.page.evaluate("document.documentElement.scrollWidth") <= 390
    for selector in (".viewer-stage", ".cloud canvas", ".drop-zone", ".download"):
        box = here.page.locator(selector).first.bounding_box()
        assert box["x"] >= 0, selector
        assert box["x"] + box["width"] <= 390, selector
    stage = here.page.locator(".viewer-stage").bounding_box()
    assert stage["width"] / stage["height"] == pytest.approx(608 / 460, rel=0.02)
    here.page.locator(".viewer-stage").tap(position={"x": 250, "y": 100})
    here.page.locator(".viewer-readout", has_text="px").wait_for()
