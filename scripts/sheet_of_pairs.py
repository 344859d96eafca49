"""One picture of what a network sees on pairs without ground truth: a tile a pair.

    python scripts/sheet_of_pairs.py FOLDER --output docs/images/without-truth.jpg

Tiles hold disparities only, because the photographs are not ours to publish; --photos adds them for your own eyes.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from matchattention.data.images import read_image
from matchattention.inference.predictor import Predictor
from matchattention.viz import disparity_picture

NAMES = (("im0", "im1"), ("left", "right"))
CAPTION = 14  # px


def find_pairs(root: Path) -> list[tuple[str, Path, Path]]:
    """Name, left and right image of every pair below a folder."""
    found = []
    for first, second in NAMES:
        for left in sorted(root.rglob(f"{first}.*")):
            right = left.with_name(second + left.suffix)
            if left.suffix in (".png", ".jpg") and right.is_file():
                found.append((left.parent.name, left, right))
    return found


def tile(picture: np.ndarray, name: str, width: int) -> Image.Image:
    """A picture scaled to fit, its name above it."""
    height = round(width * 0.62)
    image = Image.fromarray(picture)
    image.thumbnail((width - 4, height - CAPTION - 4), Image.Resampling.LANCZOS)
    canvas = Image.new("RGB", (width, height), "white")
    canvas.paste(image, ((width - image.width) // 2, CAPTION))
    ImageDraw.Draw(canvas).text((4, 1), name, fill="black")
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--model", default="rt")
    parser.add_argument("--output", type=Path, default=Path("docs/images/without-truth.jpg"))
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--width", type=int, default=260, help="of a tile, px")
    parser.add_argument("--longest", type=int, default=1000, help="larger images are halved until they fit, px")
    parser.add_argument("--photos", action="store_true", help="put the left view beside each map")
    arguments = parser.parse_args()
    predict = Predictor(arguments.model, check=False)
    tiles = []
    for name, *paths in find_pairs(arguments.root):
        left, right = (read_image(path) for path in paths)
        while max(left.shape[:2]) > arguments.longest:
            left, right = (np.asarray(Image.fromarray(view).reduce(2)) for view in (left, right))
        picture = disparity_picture(predict(left, right).disparity, bar=False)
        if arguments.photos:
            picture = np.concatenate((left, picture), 1)
        tiles.append(tile(picture, name, arguments.width * (2 if arguments.photos else 1)))
    if not tiles:
        parser.error(f"there are no pairs im0 / im1 or left / right below {arguments.root}")
    width, height = tiles[0].size
    sheet = Image.new("RGB", (arguments.columns * width, math.ceil(len(tiles) / arguments.columns) * height), "white")
    for index, picture in enumerate(tiles):
        sheet.paste(picture, (index % arguments.columns * width, index // arguments.columns * height))
    sheet.save(arguments.output, quality=85)
    print(f"{arguments.output}: {len(tiles)} pairs")


if __name__ == "__main__":
    main()
