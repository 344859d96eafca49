"""`matchattention rectify`: raw pairs to rectified ones, with the camera that belongs to them."""

from __future__ import annotations

import argparse
from pathlib import Path

_EXAMPLES = """example:
  matchattention rectify raw_left.png raw_right.png --calibration stereo.yml --output rectified
  matchattention predict rectified/left.png rectified/right.png --camera rectified/camera.json --output result

stereo.yml is what OpenCV's cv2.FileStorage writes of cv2.stereoCalibrate: K1, D1, K2, D2, R, T
(and image_width, image_height).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("left", metavar="LEFT", help="raw left image")
    parser.add_argument("right", metavar="RIGHT", help="raw right image")
    parser.add_argument("--calibration", required=True, metavar="FILE", help="OpenCV stereo calibration (YAML)")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder for left.png, right.png, camera.json")
    parser.add_argument(
        "--keep", type=float, default=0.0, metavar="0…1",
        help="0 crops to what both lenses saw (default), 1 keeps every pixel with black borders",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> None:
    import json
    from dataclasses import asdict

    from matchattention.errors import InputError
    from matchattention.geometry.pair_check import blank_view, check_pair
    from matchattention.geometry.rectification import RawCalibration, rectify
    from matchattention.inference.images import read_pair
    from matchattention.inference.outputs import require_writable, whole_folder
    from matchattention.viz.fields import write_picture

    if not 0 <= arguments.keep <= 1:
        raise InputError(f"--keep is between 0 and 1, not {arguments.keep:g}.")
    output = Path(arguments.output)
    require_writable(output)
    for raw_file in (arguments.left, arguments.right):
        if any((output / name).exists() and (output / name).samefile(raw_file) for name in ("left.png", "right.png")):
            raise InputError(f"The result would overwrite {raw_file}: give another folder as --output.")
    calibration = RawCalibration.from_file(arguments.calibration)
    raw = read_pair(arguments.left, arguments.right)
    left, right, camera = rectify(*raw, calibration, keep=arguments.keep)
    if blank_view(left, right) is not None and blank_view(*raw) is None:
        raise InputError(
            f"{arguments.calibration} leaves nothing of the images: check that K1, K2 (px), D1 and D2 belong to them."
        )
    before, after = check_pair(*raw), check_pair(left, right)
    with whole_folder(output) as stage:
        write_picture(stage / "left.png", left)
        write_picture(stage / "right.png", right)
        (stage / "camera.json").write_text(json.dumps(asdict(camera), indent=2) + "\n")
    for name, meaning in (
        ("left.png", "left view, rectified"),
        ("right.png", "right view, rectified"),
        ("camera.json", "focal length, centre and baseline, for predict --camera"),
    ):
        print(f"{output / name}  {meaning}")
    if before.conclusive and after.conclusive:
        print(
            f"vertical error of matches: {before.vertical_spread:.2f} px before, {after.vertical_spread:.2f} px after"
        )
    for sentence in after.sentences():
        print(f"but: {sentence}")
