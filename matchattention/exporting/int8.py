"""Eight bits for the layers that bear it: a quantised ONNX file from an fp32 one, calibrated on rendered scenes."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from matchattention.exporting.packages import require
from matchattention.exporting.runtime import Array

# What stays in fp32, by its weight's name: the first convolutions (they see grey levels), the projections that compare
# and move matches, and the weights that a field is made finer with. benchmarks/cpu_engines.py measures the rest.
SENSITIVE = re.compile(r"encoder\.stem|\.qkvg?\.|\.out\.|^fields\.\d+\.weight|^final\.")
SCENES, SIZE = 4, (256, 384)


def quantise(source: Path, path: Path, pairs: Iterator[tuple[Array, Array]]) -> None:
    """Write `path`: convolutions and products with 8-bit weights (a scale a channel) and activations.

    Args:
        source: an fp32 ONNX file of `write_onnx`.
        path: where to.
        pairs: images (1, 3, H, W) in [0, 255] that show which range each activation has.
    """
    onnx = require("onnx", "export", "Quantisation")
    quantization = require("onnxruntime.quantization", "export", "Quantisation")
    proto = onnx.load(source)
    names = [value.name for value in proto.graph.input][:2]

    class Pairs(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def get_next(self) -> dict[str, Array] | None:
            pair = next(pairs, None)
            return None if pair is None else dict(zip(names, pair))

    root = logging.getLogger()
    level = root.level
    # The quantiser advises every caller to simplify the graph first, the runtime not to let `initial` be left out.
    root.setLevel(logging.ERROR)
    require("onnxruntime", "export", "Quantisation").set_default_logger_severity(3)
    try:
        quantization.quantize_static(
            source,
            path,
            Pairs(),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["Conv", "MatMul"],
            nodes_to_quantize=robust_layers(proto),
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
    finally:
        root.setLevel(level)
        require("onnxruntime", "export", "Quantisation").set_default_logger_severity(2)


def robust_layers(proto: Any) -> list[str]:
    """Names of the convolutions and products of a graph that are quantised."""
    sizes = {weight.name: tuple(weight.dims) for weight in proto.graph.initializer}
    chosen = []
    for node in proto.graph.node:
        weights = [name for name in node.input if name in sizes]
        if node.op_type not in ("Conv", "MatMul") or not weights or SENSITIVE.search(weights[0]):
            continue
        depthwise = node.op_type == "Conv" and sizes[weights[0]][1] == 1  # bound by memory: nothing to gain
        if not depthwise:
            chosen.append(node.name)
    return chosen


def rendered_pairs(size: tuple[int, int] | None = None) -> Iterator[tuple[Array, Array]]:
    """The scenes to calibrate on, of the file's own size or a usual one: always the same, and never a test image."""
    import torch

    from matchattention.synth.stream.export import render_scene
    from matchattention.synth.stream.scene_stream import SceneStream
    from matchattention.synth.world.config import PRESETS

    config = replace(PRESETS["mixed"], photos=0.0)  # a photo bank may be here or not: the file must not depend on it
    stream = SceneStream(config, size or SIZE, 1, 0, torch.device("cpu"))
    for index in range(SCENES):
        scene = render_scene(stream, index)
        left, right = (image.transpose(2, 0, 1)[None].astype(np.float32) for image in (scene.image0, scene.image1))
        yield left, right
