"""The page of a flow network: two frames in, motion out."""

from __future__ import annotations

from matchattention.app.flow_result import compute_flow
from matchattention.app.flow_view import FlowView
from matchattention.app.page import Page
from matchattention.app.session import CAMERA
from matchattention.examples import list_examples


class FlowPage(Page):
    """`Page` for frames of one camera: no calibration and no check of the geometry."""

    tagline = "Two frames in, motion out. They never leave this computer."
    titles = ("First frame", "Second frame")
    button = "Compute motion"
    examples = tuple(list_examples("flow"))
    compute_pair = staticmethod(compute_flow)  # type: ignore[assignment]
    make_view = FlowView  # type: ignore[assignment]

    def build(self) -> None:
        """Lay the page out without what stereo alone has."""
        super().build()
        self._zones[CAMERA].set_visibility(False)
        self._check.set_visibility(False)
