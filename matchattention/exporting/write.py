"""`matchattention.export`: a network to a file that has been run and compared before it appears."""

from __future__ import annotations

import copy
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from matchattention.errors import InputError
from matchattention.exporting.check import Difference, compare, require_agreement
from matchattention.exporting.onnx_file import count_nodes, write_onnx
from matchattention.exporting.other_files import write_openvino, write_pt2
from matchattention.exporting.program import PRECISIONS
from matchattention.exporting.runtime import SUFFIXES, OnnxRuntime, OpenVinoRuntime, Runtime, TorchRuntime
from matchattention.models.network import COARSEST, MatchNetwork

_LARGEST = 1_900_000_000  # bytes of weights: protobuf ends at 2 GiB, the graph included


class Exported(NamedTuple):
    """What was written.

    Attributes:
        path: the file; OpenVINO's weights lie beside it as .bin.
        bytes: of all of it.
        nodes: operators in an ONNX graph, else None.
        differences: from PyTorch, one for each size that was compared.
    """

    path: Path
    bytes: int
    nodes: int | None
    differences: list[Difference]


def export(
    model: MatchNetwork | str | Path,
    path: str | Path,
    size: tuple[int, int] | None = None,
    precision: str = "fp32",
    compiled: bool = False,
) -> Exported:
    """Write a network for another runtime, run the file, and keep it only when it agrees with PyTorch.

    Stereo files take `left` and `right` (N, 3, H, W) fp32 in [0, 255] and give `disparity` and `disparity_right`
    (N, H, W) fp32 px. Flow files take `first` and `second` and give `flow` and `flow_backward` (N, 2, H, W).
    ONNX files also take `initial`, which may be left out; see `ExportedNetwork`.

    Args:
        model: a network, or the name or file of one.
        path: .onnx, .xml (OpenVINO) or .pt2 (torch.export).
        size: (H, W) px in multiples of 32 to fix, or None for any.
        precision: "fp32", "fp16" for weights and features, or for stereo "int8" for most of them; positions are fp32
            always.
        compiled: for .pt2: an AOTInductor package, compiled for this kind of machine.

    Raises:
        InputError: a suffix, size, precision or network that cannot be exported, a package that is missing, or a file
            whose mean difference from PyTorch is over 0.01 px (fp16 0.05, int8 0.5).
    """
    path = Path(path)
    check_request(path, size, precision, compiled)
    if isinstance(model, (str, Path)):
        from matchattention.models.checkpoint import load

        model = load(model)
    if not isinstance(model, MatchNetwork):
        raise InputError(f"Only a network can be exported, or the name or file of one, not {type(model).__name__}.")
    _check_network(model, path, precision)
    # A copy: what is compared computes in fp32 on the CPU, whatever the caller's network does.
    model = copy.deepcopy(model).cpu().float().eval()
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export.") as folder:
        temporary = Path(folder) / path.name
        runtime: Runtime
        if path.suffix == ".onnx":
            write_onnx(model, temporary, size, precision)
            runtime = OnnxRuntime(temporary)
        elif path.suffix == ".xml":
            write_openvino(model, temporary, size, precision)
            runtime = OpenVinoRuntime(temporary)
        else:
            write_pt2(model, temporary, size, precision, compiled)
            runtime = TorchRuntime(temporary)
        differences = compare(model, runtime, size)
        require_agreement(differences, precision, path.name)
        del runtime
        files = sorted(Path(folder).iterdir())
        total = sum(file.stat().st_size for file in files)
        for file in files:
            os.replace(file, path.parent / file.name)
    nodes = sum(count_nodes(path).values()) if path.suffix == ".onnx" else None
    return Exported(path, total, nodes, differences)


def check_request(path: Path, size: tuple[int, int] | None, precision: str, compiled: bool) -> None:
    """Raise with a sentence when no network could be exported so."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path.name} must end in .onnx, .xml (OpenVINO) or .pt2 (torch.export).")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent}: make it first.")
    if precision not in PRECISIONS:
        raise InputError(f"There is no precision '{precision}' for exports: use {', '.join(PRECISIONS)}.")
    if precision == "int8" and path.suffix == ".pt2":
        raise InputError("int8 is for .onnx and .xml files: give such an --output, or another --precision.")
    if compiled and path.suffix != ".pt2":
        raise InputError("Only .pt2 files can be compiled: leave --compile out, or give an --output that ends in .pt2.")
    if size is not None and (min(size) < COARSEST or size[0] % COARSEST or size[1] % COARSEST):
        raise InputError(
            f"--size is HEIGHTxWIDTH in multiples of {COARSEST}, such as 480x640; got {size[0]}x{size[1]}."
        )


def _check_network(model: MatchNetwork, path: Path, precision: str) -> None:
    if precision == "int8" and model.config.task != "stereo":
        raise InputError("int8 is calibrated on stereo scenes and not measured for flow: use fp32 or fp16.")
    # OpenVINO's files and quantised ones are made from an ONNX file in fp32.
    number_bytes = 2 if precision == "fp16" and path.suffix == ".onnx" else 4
    if path.suffix != ".pt2" and sum(weight.numel() for weight in model.parameters()) * number_bytes > _LARGEST:
        raise InputError(
            "This network's weights in fp32 do not fit into one ONNX file (2 GiB): "
            "give an --output that ends in .onnx with --precision fp16, or one that ends in .pt2."
        )
