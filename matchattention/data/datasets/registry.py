"""Every dataset by its name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from matchattention.data.datasets import folder as by_pattern
from matchattention.data.datasets import kitti, middlebury, real, sceneflow, sintel, synthetic
from matchattention.data.datasets.folder import FLOW_PATTERNS, FolderPatterns
from matchattention.data.datasets.sample import FlowSample, StereoSample
from matchattention.errors import InputError

Sample = StereoSample | FlowSample
Kind = Literal["stereo", "flow"]


@dataclass(frozen=True)
class Entry:
    """A dataset that can be opened.

    Attributes:
        kind: what its samples are.
        summary: one line for ``--help``.
        splits: what ``split`` may be, the default first.
        samples: lists the samples of ``(root, split)``, checking that their files exist.
    """

    kind: Kind
    summary: str
    splits: tuple[str, ...]
    samples: Callable[[Path, str], Sequence[Sample]]


def _stereo_folder(root: Path, split: str) -> Sequence[Sample]:
    return by_pattern.folder(root, FolderPatterns())


def _flow_folder(root: Path, split: str) -> Sequence[Sample]:
    return by_pattern.folder_flow(root, FLOW_PATTERNS)


_KITTI = ("training", "testing")
_WHOLE = ("all",)

DATASETS: dict[str, Entry] = {
    "middlebury": Entry("stereo", "Middlebury V3 (MiddEval3)", middlebury.MIDDLEBURY_SPLITS, middlebury.middlebury),
    "eth3d": Entry("stereo", "ETH3D two-view", ("training", "test"), middlebury.eth3d),
    "kitti2012": Entry("stereo", "KITTI 2012", _KITTI, kitti.kitti2012),
    "kitti2015": Entry("stereo", "KITTI 2015", _KITTI, kitti.kitti2015),
    "sceneflow": Entry(
        "stereo",
        "FlyingThings3D, Monkaa, Driving",
        ("test-final", *(split for split in sceneflow.SCENEFLOW_SPLITS if split != "test-final")),
        sceneflow.sceneflow,
    ),
    "drivingstereo": Entry("stereo", "DrivingStereo, half size", real.DRIVINGSTEREO_SPLITS, real.drivingstereo),
    "instereo2k": Entry("stereo", "InStereo2K", ("test", "train"), real.instereo2k),
    "booster": Entry("stereo", "Booster, balanced", ("train",), real.booster),
    "sintel-stereo": Entry("stereo", "MPI Sintel stereo", ("training-final", "training-clean"), sintel.sintel_stereo),
    "spring-stereo": Entry("stereo", "Spring stereo", ("train", "test"), sintel.spring_stereo),
    "vkitti2": Entry("stereo", "Virtual KITTI 2", _WHOLE, kitti.vkitti2),
    "fsd": Entry("stereo", "FoundationStereo's dataset", _WHOLE, synthetic.fsd),
    "crestereo": Entry("stereo", "CREStereo's dataset", _WHOLE, synthetic.crestereo),
    "wmgstereo": Entry("stereo", "WMGStereo-150k", _WHOLE, synthetic.wmgstereo),
    "irs": Entry("stereo", "IRS, indoor robotics stereo", _WHOLE, synthetic.irs),
    "folder": Entry("stereo", "your own pairs by pattern", _WHOLE, _stereo_folder),
    "sintel": Entry(
        "flow",
        "MPI Sintel",
        ("training-final", "training-clean", "test-final", "test-clean"),
        sintel.sintel,
    ),
    "kitti2012-flow": Entry("flow", "KITTI 2012 flow", _KITTI, kitti.kitti2012_flow),
    "kitti2015-flow": Entry("flow", "KITTI 2015 flow", _KITTI, kitti.kitti2015_flow),
    "middlebury-flow": Entry("flow", "Middlebury flow", ("training", "test"), middlebury.middlebury_flow),
    "spring": Entry("flow", "Spring", ("train", "test"), sintel.spring),
    "sceneflow-flow": Entry(
        "flow", "FlyingThings3D, Monkaa, Driving", sceneflow.SCENEFLOW_SPLITS, sceneflow.sceneflow_flow
    ),
    "flyingchairs": Entry("flow", "FlyingChairs", ("validation", "training"), sceneflow.flyingchairs),
    "hd1k": Entry("flow", "HD1K", ("training",), kitti.hd1k),
    "folder-flow": Entry("flow", "your own frames by pattern", _WHOLE, _flow_folder),
}


class Dataset(Sequence[Sample]):
    """The samples of one split, each read from its files when its attributes are asked for."""

    def __init__(self, name: str, kind: Kind, root: Path, split: str, samples: Sequence[Sample]) -> None:
        self.name, self.kind, self.root, self.split = name, kind, root, split
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        if isinstance(index, slice):
            return Dataset(self.name, self.kind, self.root, self.split, self._samples[index])
        # A copy, so that what it reads is freed with it and not kept for the whole dataset.
        return replace(self._samples[index])

    def __iter__(self) -> Iterator[Sample]:
        return (self[index] for index in range(len(self)))


def open_dataset(
    name: str,
    root: str | os.PathLike[str],
    split: str | None = None,
    patterns: FolderPatterns | None = None,
) -> Dataset:
    """Open a dataset in its official layout.

    Args:
        name: a key of ``DATASETS``.
        root: the folder the dataset was unpacked into.
        split: one of the dataset's splits; its first one unless told.
        patterns: file names of ``folder`` and ``folder-flow``.

    Raises:
        InputError: unknown name or split, or files that are not where the layout has them.
    """
    entry = DATASETS.get(name)
    if entry is None:
        raise InputError(f"There is no dataset {name!r}; choose one of {', '.join(DATASETS)}")
    split = split or entry.splits[0]
    if split not in entry.splits:
        raise InputError(f"{name} has no split {split!r}; choose one of {', '.join(entry.splits)}")
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"Expected {name} in {root}, but there is no such folder")
    samples: Sequence[Sample]
    if patterns is None:
        samples = entry.samples(root, split)
    elif name == "folder":
        samples = by_pattern.folder(root, patterns)
    elif name == "folder-flow":
        samples = by_pattern.folder_flow(root, patterns)
    else:
        raise InputError(f"File patterns are for folder and folder-flow; {name} has a layout of its own")
    if not samples:
        raise InputError(f"{root} holds no samples of {name} ({split})")
    return Dataset(name, entry.kind, root, split, samples)
