"""A tiny random network on disk and small pairs, for every command that needs a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import matchattention as ma
from matchattention.models.checkpoint import save
from tests.geometry.pictures import pair
from tests.inference.oracle import TINY


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> str:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save(ma.create_model(TINY), path, TINY)
    return str(path)


@pytest.fixture(scope="session")
def flow_checkpoint(tmp_path_factory) -> str:
    from dataclasses import replace

    config = replace(TINY, task="flow", windows=((4, 4),) * 4)
    path = tmp_path_factory.mktemp("model") / "tiny-flow.safetensors"
    save(ma.create_model(config), path, config)
    return str(path)


def write_pair(folder: Path, left: str = "left.png", right: str = "right.png", seed: int = 0) -> tuple[str, str]:
    """A small textured pair as two files; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    images = pair(96, 160, far=4, near=10, seed=seed)
    for name, image in zip((left, right), images):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name)
    return str(folder / left), str(folder / right)


def read(path: Path | str) -> np.ndarray:
    return np.asarray(Image.open(path))
