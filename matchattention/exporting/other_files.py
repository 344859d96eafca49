"""OpenVINO's IR, torch.export programs and AOTInductor packages."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path

from matchattention.exporting.onnx_file import write_onnx
from matchattention.exporting.packages import require
from matchattention.exporting.program import trace
from matchattention.models.network import MatchNetwork


def write_openvino(
    model: MatchNetwork, path: Path, size: tuple[int, int] | None = None, precision: str = "fp32"
) -> None:
    """Write `path` (.xml) and its weights beside it (.bin), by way of ONNX; fp16 stores weights in half precision."""
    openvino = require("openvino", "openvino", "OpenVINO export")
    with tempfile.TemporaryDirectory() as folder:
        bridge = Path(folder) / "network.onnx"
        write_onnx(model, bridge, size, "int8" if precision == "int8" else "fp32")
        converted = openvino.convert_model(bridge)
        converted.set_rt_info(model.config.task, ["matchattention", "task"])
        openvino.save_model(converted, path, compress_to_fp16=precision == "fp16")


def write_pt2(
    model: MatchNetwork,
    path: Path,
    size: tuple[int, int] | None = None,
    precision: str = "fp32",
    compiled: bool = False,
) -> None:
    """Write a torch.export program, or with `compiled` an AOTInductor package for this kind of machine."""
    import torch

    program = trace(model, size, precision, start=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if compiled:
            facts = {"task": model.config.task, "size": "any" if size is None else f"{size[0]}x{size[1]}"}
            torch._inductor.aoti_compile_and_package(
                program, package_path=os.fspath(path), inductor_configs={"aot_inductor.metadata": facts}
            )
        else:
            program.example_inputs = None  # megabytes of zeros at a fixed size
            torch.export.save(program, path)
