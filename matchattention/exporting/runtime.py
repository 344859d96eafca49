"""Exported files run again: ONNX Runtime, OpenVINO, torch.export and AOTInductor behind one call."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from matchattention.errors import InputError
from matchattention.exporting.packages import require
from matchattention.models.network import COARSEST

Array = NDArray[np.float32]
OPENVINO_PRECISIONS = {"auto": "f32", "fp32": "f32", "bf16": "bf16"}
SUFFIXES = {".onnx": "onnx", ".xml": "openvino", ".pt2": "torch"}


class Runtime(Protocol):
    """A network in a file.

    Attributes:
        task: "stereo" or "flow".
        size: (H, W) px that the file is fixed to, or None.
        takes_start: whether a call may give `initial`.
        least: px, the shortest side of an image that the file takes.
    """

    task: str
    size: tuple[int, int] | None
    takes_start: bool
    least: int

    def __call__(self, first: Array, second: Array, initial: Array | None = None) -> tuple[Array, Array]:
        """Outputs of (N, 3, H, W) fp32 images in [0, 255]; see `ExportedNetwork`."""


class OnnxRuntime:
    """ONNX Runtime on the CPU, or on a GPU where its package for one is installed.

    Args:
        path: .onnx file.
        threads: inside an operator; 0 leaves the choice to ONNX Runtime.
        device: "auto" takes every provider that is installed, "cpu" the CPU's.
    """

    takes_start = True
    least = COARSEST

    def __init__(self, path: str | Path, threads: int = 0, device: str = "auto") -> None:
        runtime = require("onnxruntime", "export", "Running an .onnx file")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        # Threads that wait asleep: spinning ones take the cores from everything else on a small machine.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"] if device == "cpu" else runtime.get_available_providers()
        try:
            self._session = runtime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:
            raise InputError(f"{path} is not an ONNX file that ONNX Runtime reads ({_first_line(error)}).") from None
        self.task = _task([value.name for value in self._session.get_inputs()], path)
        self.size = _fixed(self._session.get_inputs()[0].shape)
        self._names = [value.name for value in self._session.get_inputs()]

    def __call__(self, first: Array, second: Array, initial: Array | None = None) -> tuple[Array, Array]:
        values = dict(zip(self._names, (first, second)))
        if initial is not None:
            values["initial"] = initial
        a, b = self._session.run(None, values)
        return a, b


class OpenVinoRuntime:
    """OpenVINO on the CPU, for .xml and .onnx files.

    Args:
        path: .xml or .onnx file.
        precision: "f32" or "bf16", what OpenVINO computes in.
        threads: 0 leaves the choice to OpenVINO.
    """

    takes_start = False
    least = 2 * COARSEST  # after a map of one token OpenVINO's CPU kernels (2026.4) give nonsense for larger ones

    def __init__(self, path: str | Path, precision: str = "f32", threads: int = 0) -> None:
        openvino = require("openvino", "openvino", "Running with OpenVINO")
        settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": precision}
        if threads:
            settings["INFERENCE_NUM_THREADS"] = threads
        try:
            core = openvino.Core()
            model = core.read_model(str(path))
            self.task = _task([value.any_name for value in model.inputs], path)
            shape = model.inputs[0].partial_shape
            self.size = None if shape.is_dynamic else _fixed(list(shape.to_shape()))
            self._compiled = core.compile_model(model, "CPU", settings)
        except RuntimeError as error:
            raise InputError(f"{path} is not a file that OpenVINO reads ({_first_line(error)}).") from None

    def __call__(self, first: Array, second: Array, initial: Array | None = None) -> tuple[Array, Array]:
        if initial is not None:
            raise InputError("OpenVINO's files take no `initial`: use the .onnx file with ONNX Runtime.")
        result = self._compiled([first, second])
        return result[0], result[1]


class TorchRuntime:
    """A .pt2 file: a torch.export program or an AOTInductor package."""

    takes_start = False
    least = 2 * COARSEST  # the tracer takes a side of one token for a constant

    def __init__(self, path: str | Path) -> None:
        import torch

        try:
            with zipfile.ZipFile(path) as archive:
                compiled = any("/aotinductor/" in name for name in archive.namelist())
            if compiled:
                self._run: Any = torch._inductor.aoti_load_package(str(path))
                facts = self._run.loader.get_metadata()
                self.task, self.size = facts["task"], None
                if facts["size"] != "any":
                    height, width = facts["size"].split("x")
                    self.size = int(height), int(width)
                return
            program = torch.export.load(str(path))
            self._run = program.module()
            shapes = [node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"]
            self.size = _fixed(list(shapes[-1]))
            result = next(iter(program.graph.output_node().args[0])).meta["val"]  # type: ignore[arg-type, union-attr]
            self.task = "stereo" if result.dim() == 3 else "flow"
        except Exception as error:
            raise InputError(f"{path} is not a .pt2 file of 'matchattention export' ({_first_line(error)}).") from None

    def __call__(self, first: Array, second: Array, initial: Array | None = None) -> tuple[Array, Array]:
        import torch

        if initial is not None:
            raise InputError(".pt2 files take no `initial`: use the .onnx file.")
        # A package reads memory as if it were contiguous and does not look at strides.
        images = [torch.from_numpy(np.ascontiguousarray(image)) for image in (first, second)]
        with torch.inference_mode():
            a, b = self._run(*images)
        return a.numpy(), b.numpy()


def open_runtime(
    path: str | Path, engine: str | None = None, precision: str = "auto", threads: int = 0, device: str = "auto"
) -> Runtime:
    """The runtime for a file.

    Args:
        path: .onnx, .xml or .pt2 file.
        engine: "onnx", "openvino" or "torch"; by the suffix unless given.
        precision: "auto" is the file's own; OpenVINO also computes an fp32 file in "bf16".
        threads: 0 leaves the choice to the runtime.
        device: "auto" or "cpu".
    """
    path = Path(path)
    if device not in ("auto", "cpu"):
        raise InputError(
            f"Exported files run on the CPU, or on a GPU by itself where onnxruntime-gpu is installed: "
            f"leave --device {device} out."
        )
    if not path.is_file():
        raise InputError(f"There is no file {path}: make one with 'matchattention export --output {path}'.")
    engine = engine or SUFFIXES.get(path.suffix)
    if engine == "openvino" and path.suffix in (".onnx", ".xml"):
        if precision not in OPENVINO_PRECISIONS:
            raise InputError(f"OpenVINO runs exported files in fp32 or bf16, not {precision}.")
        return OpenVinoRuntime(path, OPENVINO_PRECISIONS[precision], threads)
    if precision not in ("auto", "fp32"):
        raise InputError(f"An exported file has its own precision: leave --precision {precision} out, or export again.")
    if engine == "onnx" and path.suffix == ".onnx":
        return OnnxRuntime(path, threads, device)
    if engine == "torch" and path.suffix == ".pt2":
        return TorchRuntime(path)
    raise InputError(f"{path.name} is no file for engine '{engine}': give .onnx, .xml (openvino) or .pt2 (torch).")


def _task(names: list[str], path: str | Path) -> str:
    if names[:2] == ["left", "right"]:
        return "stereo"
    if names[:2] == ["first", "second"]:
        return "flow"
    raise InputError(f"{path} was not written by 'matchattention export': its inputs are {', '.join(names)}.")


def _fixed(shape: list[Any]) -> tuple[int, int] | None:
    height, width = shape[-2:]
    return (height, width) if isinstance(height, int) and isinstance(width, int) else None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
