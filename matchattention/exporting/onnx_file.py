"""ONNX: one file, standard operators only, and a start that may be left out."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import matchattention
from matchattention.exporting.int8 import quantise, rendered_pairs
from matchattention.exporting.packages import require
from matchattention.exporting.program import NAMES, trace
from matchattention.models.network import MatchNetwork

OPSET = 20  # the first with Gelu as one operator


def write_onnx(model: MatchNetwork, path: Path, size: tuple[int, int] | None = None, precision: str = "fp32") -> None:
    """Write `path`; see `matchattention.exporting.write.export` for inputs and outputs."""
    if precision == "int8":
        whole = path.with_suffix(".fp32.onnx")
        write_onnx(model, whole, size)
        quantise(whole, path, rendered_pairs(size))
        whole.unlink()
        return
    for package in ("onnx", "onnxscript"):
        require(package, "export", "ONNX export")
    import torch

    inputs, outputs = NAMES[model.config.task]
    program = trace(model, size, precision)
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        exported = torch.onnx.export(
            program,
            (),
            input_names=[*inputs, "initial"],
            output_names=list(outputs),
            opset_version=OPSET,
            verbose=False,
        )
    assert exported is not None
    proto = exported.model_proto
    _make_start_optional(proto)
    _describe(proto, model, size, precision)
    require("onnx", "export", "ONNX export").save(proto, path)


def count_nodes(path: Path) -> dict[str, int]:
    """How often each operator occurs, functions included; a name with a domain is not a standard operator."""
    onnx = require("onnx", "export", "Counting operators")
    proto = onnx.load(path, load_external_data=False)
    counts: dict[str, int] = {}
    for node in [*proto.graph.node, *(node for function in proto.functions for node in function.node)]:
        name = f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        counts[name] = counts.get(name, 0) + 1
    return counts


def _make_start_optional(proto: Any) -> None:
    """Give `initial` a default, not-a-number: the network then starts from its own estimate."""
    from onnx import helper, numpy_helper

    (start,) = (value for value in proto.graph.input if value.name == "initial")
    for dimension in list(start.type.tensor_type.shape.dim)[:3]:
        dimension.Clear()  # the default is one number for all tokens
    add = proto.graph.initializer.append
    add(numpy_helper.from_array(np.full((1, 1, 1, 2), np.nan, np.float32), "initial"))
    # The program reads its sizes off `initial`; the default has none, so they come from the first image.
    steps = {"of": [0, 2, 3, 0], "times": [2, 1, 1, 0], "over": [1, 32, 32, 1], "plus": [0, 0, 0, 2]}
    for name, numbers in steps.items():
        add(numpy_helper.from_array(np.array(numbers, np.int64), f"start_{name}"))
    image = proto.graph.input[0].name
    nodes = [
        helper.make_node("Shape", [image], ["start_image"]),
        helper.make_node("Gather", ["start_image", "start_of"], ["start_sides"]),
        helper.make_node("Mul", ["start_sides", "start_times"], ["start_views"]),
        helper.make_node("Div", ["start_views", "start_over"], ["start_tokens"]),
        helper.make_node("Add", ["start_tokens", "start_plus"], ["start_shape"]),  # (2N, H / 32, W / 32, 2)
    ]
    for node in proto.graph.node:
        if node.op_type == "Shape" and node.input[0] == "initial":
            given = {attribute.name: attribute.i for attribute in node.attribute}
            limits = [f"{node.output[0]}_from", f"{node.output[0]}_to"]
            for name, number in zip(limits, (given.get("start", 0), given.get("end", 4))):
                add(numpy_helper.from_array(np.array([number], np.int64), name))
            nodes.append(helper.make_node("Slice", ["start_shape", *limits], list(node.output)))
        else:
            nodes.append(node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _describe(proto: Any, model: MatchNetwork, size: tuple[int, int] | None, precision: str) -> None:
    # The exporter notes where each operator comes from: megabytes, with the paths of the machine that exported.
    graph = proto.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
    del proto.metadata_props[:]
    proto.producer_name, proto.producer_version = "matchattention", matchattention.__version__
    facts = {
        "task": model.config.task,
        "precision": precision,
        "size": "any" if size is None else f"{size[0]}x{size[1]}",
        "config": json.dumps(model.config.to_dict()),
    }
    for name, value in facts.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = name, value


@contextlib.contextmanager
def _quiet() -> Any:
    """Without the exporter's progress on stdout and its notes about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            yield
    finally:
        logger.setLevel(level)
