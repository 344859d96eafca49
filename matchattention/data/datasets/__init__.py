"""Datasets in their official layouts: ``datasets.open("kitti2015", root, "training")[0].disparity``."""

from matchattention.data.datasets.folder import FLOW_PATTERNS, FolderPatterns
from matchattention.data.datasets.registry import DATASETS, Dataset
from matchattention.data.datasets.registry import open_dataset as open  # datasets.open reads as what it does
from matchattention.data.datasets.sample import FlowSample, StereoSample

__all__ = ["DATASETS", "FLOW_PATTERNS", "Dataset", "FlowSample", "FolderPatterns", "StereoSample", "open"]
