"""The result's part of the page: viewer, cloud, downloads."""

from __future__ import annotations

from typing import Any

import numpy as np
from nicegui import ui

from matchattention.app.components import DepthViewer
from matchattention.app.result import LEFT_VIEW, VALUES, VIEWS, Cloud, Result
from matchattention.viz.colormaps import colormap

_LEGEND_COLOURS = 9
_CLOUD_BACKGROUND = "#101216"


class ResultView:
    """Shows one result after another in the container it is created in; hidden while there is none."""

    def __init__(self) -> None:
        self._result: Result | None = None
        self._address = ""
        with ui.column().classes("result") as self._all:
            with ui.element("section").classes("card"):
                with ui.row().classes("result-head"):
                    self._layer = ui.toggle(["Disparity"], value="Disparity", on_change=self._show_layer).props(
                        "no-caps unelevated dense padding='4px 12px'"
                    )
                    self._facts = ui.label().classes("muted")
                self._viewer = DepthViewer()
                self._notes = ui.column().classes("notes")
            with ui.element("section").classes("card"):
                ui.label("Point cloud").classes("card-title")
                self._cloud = ui.element("div").classes("cloud")
                self._cloud_note = ui.label().classes("muted")
            with ui.element("section").classes("card"):
                ui.label("Downloads").classes("card-title")
                self._downloads = ui.element("div").classes("downloads")
        self.hide()

    def hide(self) -> None:
        """Show nothing: a new result is on its way."""
        self._all.set_visibility(False)

    def show(self, result: Result, address: str, computed_by: str) -> None:
        """Show a result.

        Args:
            result: what to show.
            address: its files are found below it.
            computed_by: model and device, in words.
        """
        self._result, self._address = result, address
        self._all.set_visibility(True)
        self._facts.set_text(f"{result.width}x{result.height} px, {result.seconds:.1f} s with {computed_by}")
        self._viewer.show_result(address, LEFT_VIEW, VALUES, (result.width, result.height), result.camera)
        shown = str(self._layer.value)
        self._layer.set_options(result.views, value=shown if shown in result.views else result.views[0])
        self._show_layer()
        self._notes.clear()
        with self._notes:
            for note in result.notes:
                ui.label(note).classes("note")
        self._show_cloud(result.cloud, result.camera is not None)
        show_downloads(self._downloads, result.downloads, address)
        ui.run_javascript(f"getHtmlElement({self._all.id}).scrollIntoView({{behavior: 'smooth'}})")

    def _show_layer(self) -> None:
        if self._result is not None:
            name = str(self._layer.value)
            self._viewer.show_layer(f"{self._address}/{VIEWS[name]}", _legend(name, self._result))

    def _show_cloud(self, cloud: Cloud | None, metric: bool) -> None:
        self._cloud.clear()
        if cloud is None:
            self._cloud_note.set_text("No point is certain enough to be shown.")
            return
        with (
            self._cloud,
            ui.scene(
                grid=False,
                camera=ui.scene.perspective_camera(fov=52, near=0.02),
                background_color=_CLOUD_BACKGROUND,
                fps=30,
                click_events=[],
            ) as scene,
        ):
            scene.point_cloud(_rounded(cloud.points), _rounded(cloud.colours), point_size=max(0.008, 3 * cloud.spacing))
        scene.move_camera(-0.5, -0.5, 0.4, 0, 3.2, -0.1, duration=0)  # the photographer's place, a step aside
        unit = "" if metric else " Without a camera file its depth has no scale and a 53° wide view is assumed."
        self._cloud_note.set_text(
            f"Drag to turn, scroll or pinch to come closer. {cloud.shown:,} of {cloud.found:,} points.{unit}"
        )


def show_downloads(container: Any, downloads: dict[str, str], address: str) -> None:
    """Fill a container with links to files below an address, each with what it holds."""
    container.clear()
    with container:
        for name, meaning in downloads.items():
            link = ui.link(target=f"{address}/{name}?download=true").classes("download").props(f'download="{name}"')
            with link:
                ui.icon("download")
                with ui.element("span"):
                    ui.label(name).classes("download-name")
                    ui.label(meaning).classes("download-meaning")


def _legend(name: str, result: Result) -> dict[str, Any]:
    if name == "Disparity":
        low, high = result.disparity_range
        return {"colours": _shades("dusk"), "low": f"{low:.1f}", "high": f"{high:.1f}", "text": "px, bright is near"}
    if name == "Depth" and result.depth_range is not None:
        low, high = result.depth_range
        text = "m on a logarithmic scale, bright is far"
        return {"colours": _shades("reef"), "low": f"{low:.2g}", "high": f"{high:.2g}", "text": text}
    if name == "Confidence":
        return {"colours": _shades("reef"), "low": "0", "high": "100", "text": "%, bright is certain"}
    if name == "Occlusion":
        return {"text": "red: not seen by the right camera"}
    return {"text": "drag the handle to compare left and right"}


def _shades(name: str) -> list[str]:
    table = colormap(name)
    chosen = table[np.linspace(0, len(table) - 1, _LEGEND_COLOURS).astype(int)]
    return ["#" + "".join(f"{channel:02x}" for channel in colour) for colour in chosen.tolist()]


def _rounded(values: Any) -> list[list[float]]:
    """As lists with three decimals: a third of the bytes to send."""
    return np.round(values.astype(np.float64), 3).tolist()
