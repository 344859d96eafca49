"""The two parts of the page that no toolkit has: a drop zone that sends a file, and a viewer that reads off values."""

from __future__ import annotations

from typing import Any

from nicegui.element import Element


class DropZone(Element, component="drop_zone.js"):
    """A field to drop a file on or choose one.

    Emits `received` once the server has taken a file, and `refused` with its sentence when it has not.

    Args:
        title: what belongs here.
        hint: what kind of file that is.
        address: where the file is posted to.
        accept: suffixes for the browser's dialogue.
        icon: name of a Material icon.
        compact: one line instead of a picture.
    """

    def __init__(
        self, title: str, hint: str, address: str, accept: tuple[str, ...], icon: str, *, compact: bool = False
    ) -> None:
        super().__init__()
        self._props.update(
            title=title, hint=hint, address=address, accept=",".join(accept), icon=icon, compact=compact,
            preview="", caption="",
        )  # fmt: skip

    def show(self, caption: str, preview: str = "") -> None:
        """Say what is held now, with a picture where there is one; an empty caption: nothing."""
        self._props.update(caption=caption, preview=preview)
        self.update()


class DepthViewer(Element, component="depth_viewer.js"):
    """The left photo under a layer that a slider uncovers, with the values under the pointer."""

    def show_result(self, address: str, base: str, values: str, size: tuple[int, int], camera: Any) -> None:
        """Show another result.

        Args:
            address: the result's files are found below it.
            base: file of the left photo.
            values: file of the values of every pixel.
            size: (width, height) px.
            camera: a `StereoCamera`, or None when there are no metres.
        """
        metres = None if camera is None else {"scale": camera.fx * camera.baseline, "doffs": camera.doffs}
        self._props.update(
            base=f"{address}/{base}", values=f"{address}/{values}", width=size[0], height=size[1], metres=metres
        )
        self.update()

    def show_layer(self, source: str, legend: dict[str, Any]) -> None:
        """Lay a picture over the photo.

        Args:
            source: its address.
            legend: `text`, and for a scale also `colours`, `low` and `high`.
        """
        self._props.update(layer=source, legend=legend)
        self.update()
