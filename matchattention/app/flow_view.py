"""The result's part of the page for flow: motion under the pointer, arrows, what the second frame does not show."""

from __future__ import annotations

import base64
import io
from functools import cache

import numpy as np
from nicegui import ui
from nicegui.element import Element

from matchattention.app.flow_result import VIEWS, FlowResult
from matchattention.app.result import LEFT_VIEW, VALUES
from matchattention.app.result_view import show_downloads
from matchattention.viz.flow import direction_colours

_WHEEL = 96  # px
_LEGENDS = {
    "Motion": "hue is the direction, strength the length",
    "Arrows": "where points of a grid go",
    "Occlusion": "red: not in the second frame, or hidden there; found by following matches there and back",
    "Confidence": "bright: following the match there and back ends where it began",
    "Second": "drag the handle to compare the frames",
}


class FlowViewer(Element, component="flow_viewer.js"):
    """The first frame under a layer that a slider uncovers; a wheel shows the motion under the pointer."""

    def show_result(self, address: str, size: tuple[int, int], longest: float) -> None:
        """Show another result.

        Args:
            address: its files are found below it.
            size: (width, height) px.
            longest: px, motion at the wheel's rim.
        """
        self._props.update(
            base=f"{address}/{LEFT_VIEW}", values=f"{address}/{VALUES}", width=size[0], height=size[1],
            longest=longest, wheel=_wheel(),
        )  # fmt: skip
        self.update()

    def show_layer(self, source: str, legend: str) -> None:
        """Lay a picture over the frame."""
        self._props.update(layer=source, legend=legend)
        self.update()


class FlowView:
    """Shows one result after another in the container it is created in; hidden while there is none."""

    def __init__(self) -> None:
        self._result: FlowResult | None = None
        self._address = ""
        with ui.column().classes("result") as self._all:
            with ui.element("section").classes("card"):
                with ui.row().classes("result-head"):
                    self._layer = ui.toggle(list(VIEWS), value="Motion", on_change=self._show_layer).props(
                        "no-caps unelevated dense padding='4px 12px'"
                    )
                    self._facts = ui.label().classes("muted")
                self._viewer = FlowViewer()
                self._notes = ui.column().classes("notes")
            with ui.element("section").classes("card"):
                ui.label("Downloads").classes("card-title")
                self._downloads = ui.element("div").classes("downloads")
        self.hide()

    def hide(self) -> None:
        """Show nothing: a new result is on its way."""
        self._all.set_visibility(False)

    def show(self, result: FlowResult, address: str, computed_by: str) -> None:
        """Show a result.

        Args:
            result: what to show.
            address: its files are found below it.
            computed_by: model and device, in words.
        """
        self._result, self._address = result, address
        self._all.set_visibility(True)
        self._facts.set_text(
            f"{result.width}x{result.height} px, {result.hidden:.0f} % not in the second frame, "
            f"{result.seconds:.1f} s with {computed_by}"
        )
        self._viewer.show_result(address, (result.width, result.height), result.longest)
        self._show_layer()
        self._notes.clear()
        with self._notes:
            for note in result.notes:
                ui.label(note).classes("note")
        show_downloads(self._downloads, result.downloads, address)
        ui.run_javascript(f"getHtmlElement({self._all.id}).scrollIntoView({{behavior: 'smooth'}})")

    def _show_layer(self) -> None:
        if self._result is not None:
            name = str(self._layer.value)
            self._viewer.show_layer(f"{self._address}/{VIEWS[name]}", _LEGENDS[name])


@cache
def _wheel() -> str:
    """The wheel of directions as an address of its own: a PNG with nothing outside of its rim."""
    from PIL import Image

    span = np.linspace(-1, 1, _WHEEL)
    vectors = np.stack(np.meshgrid(span, span), -1)
    inside = np.linalg.norm(vectors, axis=-1, keepdims=True) <= 1
    picture = np.concatenate((direction_colours(vectors), np.where(inside, 255, 0).astype(np.uint8)), -1)
    buffer = io.BytesIO()
    Image.fromarray(picture, "RGBA").save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
