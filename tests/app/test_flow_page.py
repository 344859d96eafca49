"""The page of a flow network: files and views, and what people see in a real browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import matchattention as ma
from matchattention.app.worker import Progress
from matchattention.data.formats import read_flo
from matchattention.inference.predictor import Predictor
from matchattention.viz.flow_arrows import flow_arrows
from tests.app.test_page import SLOW
from tests.cli.conftest import write_pair
from tests.inference.oracle import TINY

FILES = ["flow.png", "flow.flo", "flow_backward.flo", "occlusion.png", "confidence.png"]


def test_everything_served_is_there_and_values_are_the_download(tmp_path: Path) -> None:
    from matchattention.app.flow_result import ARCHIVE, LEFT_VIEW, VALUES, VIEWS, compute_flow

    first, second = (Path(path) for path in write_pair(tmp_path))
    predictor = Predictor(ma.create_model(replace(TINY, task="flow", windows=((4, 4),) * 4)), "cpu")
    result = compute_flow(predictor, first, second, None, tmp_path / "result-1", Progress())
    assert list(result.downloads) == [*FILES, ARCHIVE]
    served = [*result.downloads, *VIEWS.values(), LEFT_VIEW, VALUES]
    assert sorted(path.name for path in result.folder.iterdir()) == sorted(served)
    assert all(result.file(name) is not None for name in served)
    assert result.file("../first.png") is None
    for name in (*VIEWS.values(), LEFT_VIEW):
        assert Image.open(result.folder / name).size == (160, 96)
    flow = read_flo(result.folder / "flow.flo")
    values = (result.folder / VALUES).read_bytes()
    assert len(values) == 10 * 96 * 160
    stored = np.frombuffer(values, "<f4", 2 * 96 * 160).reshape(2, 96, 160)
    np.testing.assert_array_equal(stored, flow.transpose(2, 0, 1))
    assert 0 <= result.hidden <= 100
    assert result.longest == pytest.approx(np.percentile(np.linalg.norm(flow, axis=-1), 99))


def test_arrows_point_where_things_go_and_hidden_points_have_none() -> None:
    image = np.zeros((40, 60, 3), np.uint8)
    flow = np.zeros((40, 60, 2), np.float32)
    flow[..., 0] = 10
    plain = flow_arrows(image, np.zeros_like(flow), spacing=20, occlusion=np.ones((40, 60), bool))
    drawn = flow_arrows(image, flow, spacing=20)
    changed = (drawn != plain).any(-1)
    assert changed[10, 12:19].all()  # from the grid point at x 10 to the right
    assert not changed[10, :8].any()
    assert changed[10, 15]
    hidden = np.zeros((40, 60), bool)
    hidden[10, 10] = True
    assert not (flow_arrows(image, flow, spacing=20, occlusion=hidden) != plain).any(-1)[10, 12:19].any()


def test_two_frames_in_motion_out(browser, flow_address, tmp_path) -> None:
    first, second = write_pair(tmp_path, "first.png", "second.png")
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(SLOW)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.goto(flow_address)
    button = page.get_by_role("button", name="Compute motion")
    button.wait_for()
    assert not page.get_by_text("Camera file").is_visible()
    assert page.get_by_text("or try an example").is_visible()
    for slot, path in (("First frame", first), ("Second frame", second)):
        page.get_by_label(slot, exact=True).set_input_files(path)
        page.locator(".drop-zone.filled", has_text=Path(path).name).wait_for()
    button.click()
    page.locator(".viewer[data-ready=true]").wait_for()
    for name in ("Arrows", "Occlusion", "Confidence", "Second", "Motion"):
        page.get_by_role("button", name=name, exact=True).click()
        page.locator(f'.viewer-layer[src*="view_{name.lower()}"]').wait_for()
    page.locator(".viewer-stage").hover(position={"x": 60, "y": 60})
    assert "right" in page.locator(".viewer-readout").inner_text()
    assert page.locator(".flow-needle").is_visible()
    assert page.locator(".flow-tip img").evaluate("image => image.naturalWidth") == 96
    with page.expect_download() as download:
        page.locator('a[download="flow.flo"]').click()
    assert read_flo(download.value.path()).shape == (96, 160, 2)
    assert complaints == []
    page.screenshot(path=str(tmp_path / "page.png"), full_page=True)


def test_the_example_moves(browser, flow_address) -> None:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(SLOW)
    page.goto(flow_address)
    page.get_by_role("button", name="drive", exact=True).click()
    page.locator(".drop-zone.filled", has_text="drive frame2.png, 704x396").wait_for()
    page.locator(".viewer[data-ready=true]").wait_for()
