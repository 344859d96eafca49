"""From disparity to metres: cameras, rectification, point clouds, and whether a pair is in order."""

from matchattention.geometry.camera import StereoCamera
from matchattention.geometry.cloud import flying_pixel_mask, write_depth_png16, write_ply
from matchattention.geometry.pair_check import PairReport, check_pair, judge_pair
from matchattention.geometry.rectification import RawCalibration, rectify

__all__ = [
    "PairReport",
    "RawCalibration",
    "StereoCamera",
    "check_pair",
    "flying_pixel_mask",
    "judge_pair",
    "rectify",
    "write_depth_png16",
    "write_ply",
]
