"""What the CPU study measures of each model: on which pairs, with which engines, and in which columns it is told."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matchattention.data.datasets.folder import FLOW_PATTERNS, FolderPatterns

RESULTS = Path(__file__).resolve().parent / "results"


class Pairs(NamedTuple):
    """A set of pairs with ground truth, and the figures that are kept of it."""

    title: str
    dataset: str
    folder: str
    figures: tuple[str, ...]
    split: str | None = None
    patterns: FolderPatterns | None = None


class Engine(NamedTuple):
    """What runs an exported file: the precision it is exported with, the engine, and what that computes in."""

    exported: str
    engine: str
    precision: str


class Column(NamedTuple):
    """A column of the table: (mask, figure) of a set, one or more."""

    title: str
    pairs: str
    figures: tuple[tuple[str, str], ...]


class Study(NamedTuple):
    """One model's study.

    Attributes:
        model: a shipped model.
        pairs: what it is judged on, by the names that the JSON file has.
        engines: None is PyTorch; the first is what all others are compared with.
        columns: of the table.
        points: (set, figure, its name): what an engine must not lose.
    """

    model: str
    pairs: dict[str, Pairs]
    engines: dict[str, Engine | None]
    columns: tuple[Column, ...]
    points: tuple[tuple[str, str, str], ...]

    @property
    def result(self) -> Path:
        """The JSON file of what was measured."""
        return RESULTS / f"cpu-engines-{self.model}.json"

    def file(self, engine: Engine) -> str:
        """The name of an engine's exported file."""
        return f"{self.model}.onnx" if engine.exported == "fp32" else f"{self.model}-{engine.exported}.onnx"


FLOATS: dict[str, Engine | None] = {
    "PyTorch fp32": None,
    "ONNX Runtime fp32": Engine("fp32", "onnx", "auto"),
    "OpenVINO fp32": Engine("fp32", "openvino", "fp32"),
    "OpenVINO bf16": Engine("fp32", "openvino", "bf16"),
}
INT8: dict[str, Engine | None] = {
    "ONNX Runtime int8": Engine("int8", "onnx", "auto"),
    "OpenVINO int8": Engine("int8", "openvino", "fp32"),
}

STEREO = Study(
    model="rt",
    pairs={
        "middlebury": Pairs("Middlebury Q", "middlebury", "MiddEval3", ("bad2", "bad1", "epe"), split="trainingQ"),
        "kitti2015": Pairs("KITTI 2015", "kitti2015", "kitti2015", ("d1", "epe")),
    },
    engines=FLOATS | INT8,
    columns=(
        Column("Middlebury Q, bad 2 noc / all, %", "middlebury", (("noc", "bad2"), ("all", "bad2"))),
        Column("bad 1 noc, %", "middlebury", (("noc", "bad1"),)),
        Column("KITTI 2015, D1 noc / all, %", "kitti2015", (("noc", "d1"), ("all", "d1"))),
    ),
    points=(("middlebury", "bad1", "bad 1"), ("middlebury", "bad2", "bad 2"), ("kitti2015", "d1", "D1")),
)

_FLOW_SETS = {
    "kitti2012": "KITTI 2012",
    "kitti2015": "KITTI 2015",
    "sintel": "Sintel",
    "middlebury": "Middlebury",
    "flyingchairs": "FlyingChairs",
}
_KITTI = FolderPatterns(FLOW_PATTERNS.left, FLOW_PATTERNS.right, truth="*/flow_occ.png", visible="*/flow_noc.png")

FLOW = Study(
    model="rt-flow",
    pairs={
        name: Pairs(title, "folder-flow", name, ("fl", "epe"), patterns=_KITTI if name.startswith("kitti") else None)
        for name, title in _FLOW_SETS.items()
    },
    engines=FLOATS,
    columns=tuple(
        Column(f"{title}, EPE px / Fl %", name, (("all", "epe"), ("all", "fl"))) for name, title in _FLOW_SETS.items()
    ),
    points=tuple((name, "fl", "Fl") for name in _FLOW_SETS),
)

STUDIES = {study.model: study for study in (STEREO, FLOW)}
