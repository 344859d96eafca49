"""Pictures: one function each, used by predict, evaluate, the app and the documentation."""

from matchattention.viz.arrows import self_position_arrows
from matchattention.viz.colormaps import colormap, colourise
from matchattention.viz.evolution import evolution_frames, evolution_strip, write_evolution_gif
from matchattention.viz.fields import (
    confidence_picture,
    depth_picture,
    disparity_picture,
    error_picture,
    occlusion_overlay,
    write_picture,
)
from matchattention.viz.flow import flow_picture
from matchattention.viz.scale_bar import with_scale_bar

__all__ = [
    "colormap",
    "colourise",
    "confidence_picture",
    "depth_picture",
    "disparity_picture",
    "error_picture",
    "evolution_frames",
    "evolution_strip",
    "flow_picture",
    "occlusion_overlay",
    "self_position_arrows",
    "with_scale_bar",
    "write_evolution_gif",
    "write_picture",
]
