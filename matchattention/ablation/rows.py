"""The rows of the ablation tables as data: what each one changes, and what is claimed of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.synth.world.config import SceneConfig

BASELINE = "rt"
_2D = ((4, 4),) * 4


@dataclass(frozen=True)
class Row:
    """One variant of the network or of the scenes; everything it does not name is the baseline's.

    Attributes:
        name: The registered network's, or "scenes-…".
        group: The paper's heading, or "scenes".
        words: What is different, for a table.
        network: Changed values of a `NetworkConfig`.
        wider: Factor on all channel widths.
        scenes: Changed values of a `SceneConfig`.
    """

    name: str
    group: str
    words: str
    network: Mapping[str, Any] = field(default_factory=dict)
    wider: int = 1
    scenes: Mapping[str, Any] = field(default_factory=dict)

    def network_config(self, base: NetworkConfig) -> NetworkConfig:
        """This row's network when ``base`` is the baseline's."""
        a, b, c, d = (self.wider * width for width in base.channels)
        return replace(base, channels=(a, b, c, d), **self.network)

    def scene_config(self, base: SceneConfig) -> SceneConfig:
        """The scenes this row is trained on when ``base`` are the baseline's."""
        return replace(base, **self.scenes)


NETWORK_ROWS = (
    Row("rt", "default", "MatchAttentionRT"),
    Row("rt-local", "(i) attention family", "local attention", {"attention": "local"}),
    Row("rt-nat", "(i) attention family", "neighbourhood attention (NAT)", {"attention": "neighborhood"}),
    Row("rt-swin", "(i) attention family", "Swin attention", {"attention": "swin"}),
    Row("rt-global-1d", "(i) attention family", "global 1D attention", {"attention": "global-1d"}),
    Row("rt-self-blind", "(ii) block", "self-attention without cross position", {"self_sees_cross": False}),
    Row("rt-double-cross", "(ii) block", "cross-attention twice", {"first_attention": "cross"}),
    Row("rt-dot", "(iii) similarity", "dot product", {"similarity": "dot"}),
    Row("rt-1x8", "(iv) window", "1x8", {"windows": ((1, 8),) * 4}),
    Row("rt-no-occlusion", "(v) occlusion", "no gate, no masked loss", {"gate": False, "occlusion_loss": False}),
    Row("rt-wide", "(vi) width", "twice the channels", wider=2),
    Row("rt-2d", "(vii) 1D or 2D", "4x4", {"windows": _2D}),
    Row("rt-full", "(viii) compression", "full channels", {"compression": 1}),
    Row("rt-full-2d", "(viii) compression", "full channels, 4x4", {"compression": 1, "windows": _2D}),
)

SCENE_ROWS = (
    Row(
        "scenes-no-thin",
        "scenes",
        "no wires, cut-outs, plants",
        scenes={"wires": False, "cards": False, "plants": False},
    ),
    Row("scenes-no-floating", "scenes", "no floating objects", scenes={"floating": 0.0}),
    Row("scenes-floating-alone", "scenes", "floating objects alone, no layouts", scenes={"layouts": {"flying": 1.0}}),
    Row("scenes-no-photos", "scenes", "no photo textures", scenes={"photos": 0.0}),
    Row(
        "scenes-no-gloss",
        "scenes",
        "no highlights, mirrors, glass",
        scenes={"specular": False, "mirrors": 0.0, "clear": 0.0, "panes": 0.0},
    ),
    Row("scenes-no-plain", "scenes", "no bare surfaces", scenes={"plain": 0.0}),
    Row(
        "scenes-even-light",
        "scenes",
        "no shadows, no other light in one view",
        scenes={"shadows": False, "relit": 0.0},
    ),
    Row(
        "scenes-perfect-cameras",
        "scenes",
        "perfect cameras",
        scenes={"sensor": "clean", "vertical_error": (0.0, 0.0)},
    ),
    Row("scenes-no-curves", "scenes", "boxes and cards alone", scenes={"curved": False}),
)

ROWS = {row.name: row for row in (*NETWORK_ROWS, *SCENE_ROWS)}
# What `--table` chooses; every one has the baseline in it.
TABLES: dict[str, tuple[str, ...]] = {
    "6": tuple(row.name for row in NETWORK_ROWS),
    "7": ("rt", "rt-2d", "rt-full", "rt-full-2d"),
    "scenes": ("rt", *(row.name for row in SCENE_ROWS)),
    "all": tuple(ROWS),
}


@dataclass(frozen=True)
class Claim:
    """What the paper says of a row beside the baseline.

    Attributes:
        words: The claim.
        row: Whose.
        measure: The figure it is about.
        expected: "worse": the row's error is larger; "not better": it is not smaller.
    """

    words: str
    row: str
    measure: str
    expected: Literal["worse", "not better"]


CLAIMS = (
    Claim("local attention is behind", "rt-local", "rendered/all/bad1", "worse"),
    Claim("NAT is behind", "rt-nat", "rendered/all/bad1", "worse"),
    Claim("Swin attention is behind", "rt-swin", "rendered/all/bad1", "worse"),
    Claim("global 1D attention is behind", "rt-global-1d", "rendered/all/bad1", "worse"),
    Claim("self-attention needs the cross position", "rt-self-blind", "rendered/all/bad1", "worse"),
    Claim("a block needs self-attention", "rt-double-cross", "rendered/all/bad1", "worse"),
    Claim("L1 is ahead of the dot product", "rt-dot", "rendered/all/bad1", "worse"),
    Claim("gate and mask help where a pixel is occluded", "rt-no-occlusion", "rendered/occluded/bad1", "worse"),
    Claim("1x4 is not behind 1x8", "rt-1x8", "rendered/all/bad1", "not better"),
    Claim("1D is not behind 2D on rectified pairs", "rt-2d", "rendered/all/bad1", "not better"),
)


def choose_rows(table: str, names: Sequence[str] | None) -> list[Row]:
    """Rows of a table, or those named; the baseline always comes first, because the others are compared with it."""
    if names is None:
        if table not in TABLES:
            raise InputError(f"There is no table '{table}'; choose one of {', '.join(TABLES)}.")
        names = TABLES[table]
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise InputError(f"There is no row '{unknown[0]}'; choose from {', '.join(ROWS)}.")
    return [ROWS[name] for name in dict.fromkeys((BASELINE, *names))]


Say = Callable[[str], None]
