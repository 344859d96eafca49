"""A small network and its ONNX file, exported once for all tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import matchattention as ma
from matchattention.models.registry import RT

TINY = replace(
    RT,
    channels=(16, 16, 32, 32),
    encoder_depths=(1, 1, 1, 1),
    decoder_depths=(1, 1, 1, 1),
    initial_layers=1,
    sinkhorn_iterations=2,
)


def lively(config):
    """A random network whose position rows are not zero, so that every window moves."""
    torch.manual_seed(0)
    model = ma.create_model(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("out.weight") and "stages" in name:
                weight.normal_(std=0.02)
    return model


@pytest.fixture(scope="session")
def tiny():
    return lively(TINY)


@pytest.fixture(scope="session")
def onnx_file(tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "tiny.onnx"
    return ma.export(tiny, path)
