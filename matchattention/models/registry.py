"""Every network by name."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork


class Registered(NamedTuple):
    """A named network.

    Attributes:
        config: what it is made of.
        summary: one line.
        paper_parameters: millions in the paper, which counts an unused 1000-way classifier; None if not there.
    """

    config: NetworkConfig
    summary: str
    paper_parameters: float | None = None


RT = NetworkConfig()
_2D = ((4, 4),) * 4
_FULL_2D = replace(RT, windows=_2D, compression=1)
XL = replace(RT, channels=(384, 768, 1024, 1536), windows=_2D)
_CASCADE = ((6, 6), (6, 6), (4, 4), (4, 4))
_RELEASED = replace(
    RT,
    windows=_CASCADE,
    compression=1,
    initial="softmax",
    initial_layers=0,
    residual_scales=False,
    self_mask=True,
    upsampling_border="zero",
)

NETWORKS: dict[str, Registered] = {
    "rt": Registered(RT, "MatchAttentionRT: real-time stereo, 1/4 channels, 1x4 window", 10.92),
    "xl": Registered(XL, "MatchAttentionXL: accurate stereo, 4x4 window", 507.1),
    "rt-flow": Registered(replace(RT, task="flow", windows=_2D), "RT's widths for optical flow, 4x4 window"),
    "xl-flow": Registered(replace(XL, task="flow"), "XL for optical flow"),
    # Table 7: {full, 1/4 channels} x {1D, 2D}; "rt" is the fourth.
    "rt-2d": Registered(replace(RT, windows=_2D), "1/4 channels, 4x4 window (tables 6 and 7)", 11.10),
    "rt-full": Registered(replace(RT, compression=1), "full channels, 1x4 window (tables 6 and 7)", 16.50),
    "rt-full-2d": Registered(_FULL_2D, "full channels, 4x4 window (tables 6 and 7)", 16.68),
    # Figure 5: where the acceleration starts.
    "rt-cascade": Registered(replace(_FULL_2D, windows=_CASCADE), "full channels, 6x6 6x6 4x4 4x4 (figure 5)"),
    # Table 6.
    "rt-local": Registered(replace(RT, attention="local"), "local attention instead (table 6 i)", 10.86),
    "rt-nat": Registered(replace(RT, attention="neighborhood"), "neighbourhood attention (table 6 i)", 10.86),
    "rt-swin": Registered(replace(RT, attention="swin"), "Swin attention instead (table 6 i)", 10.86),
    "rt-global-1d": Registered(replace(RT, attention="global-1d"), "global 1D attention (table 6 i)", 10.86),
    "rt-self-blind": Registered(
        replace(RT, self_sees_cross=False), "self-attention without cross position (table 6 ii)", 10.91
    ),
    "rt-double-cross": Registered(
        replace(RT, first_attention="cross"), "cross-attention twice, no self-attention (table 6 ii)", 11.13
    ),
    "rt-dot": Registered(replace(RT, similarity="dot"), "dot-product similarity (table 6 iii)", 10.92),
    "rt-1x8": Registered(replace(RT, windows=((1, 8),) * 4), "1x8 window (table 6 iv)", 10.98),
    "rt-no-occlusion": Registered(
        replace(RT, gate=False, occlusion_loss=False), "no gate, no masked loss (table 6 v)", 10.75
    ),
    "rt-wide": Registered(replace(RT, channels=(64, 128, 256, 512)), "twice the width (table 6 vi)", 42.61),
    # The authors' earlier networks; `matchattention convert` turns their files into ours.
    "released-t": Registered(replace(_RELEASED, channels=(32, 64, 128, 160)), "released MatchStereo-T"),
    "released-s": Registered(replace(_RELEASED, channels=(64, 128, 160, 320)), "released MatchStereo-S"),
    "released-b": Registered(replace(_RELEASED, channels=(128, 256, 320, 512)), "released MatchStereo-B"),
    "released-b-flow": Registered(
        replace(_RELEASED, channels=(128, 256, 320, 512), task="flow"), "released MatchFlow-B"
    ),
}


def list_models() -> dict[str, str]:
    """Names of all registered networks with one line each."""
    return {name: entry.summary for name, entry in NETWORKS.items()}


def network_config(name: str) -> NetworkConfig:
    """The config of a registered network."""
    if name not in NETWORKS:
        raise InputError(f"There is no network '{name}'; choose one of {', '.join(NETWORKS)}.")
    return NETWORKS[name].config


def create_model(name: str | NetworkConfig) -> MatchNetwork:
    """A registered network, or one of your own config, with random weights."""
    return MatchNetwork(name if isinstance(name, NetworkConfig) else network_config(name))
