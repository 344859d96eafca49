"""`matchattention export`: a network as a file for other runtimes, checked against PyTorch."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from matchattention.cli.sizes import parse_size

_EXAMPLES = """examples:
  matchattention export --model rt --output rt.onnx                      any size in steps of 32
  matchattention export --model rt --output rt-480x640.onnx --size 480x640
  matchattention export --model rt --output rt-half.onnx --precision fp16
  matchattention export --model rt --output rt-int8.onnx --precision int8
  matchattention export --model rt --output rt.xml                       OpenVINO
  matchattention export --model rt --output rt.pt2                       torch.export
  matchattention export --model rt --output rt-cpu.pt2 --compile         AOTInductor

Stereo files take left and right (N, 3, H, W) float32 in [0, 255] and give disparity and disparity_right
(N, H, W) px; flow files take first and second and give flow and flow_backward (N, 2, H, W).
The file is run on photographs of three sizes and kept only when it agrees with PyTorch.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("--model", default="rt", help="shipped model, .safetensors or released .pth file (default rt)")
    parser.add_argument("--output", required=True, metavar="FILE", help=".onnx, .xml (OpenVINO) or .pt2 (torch.export)")
    parser.add_argument("--size", metavar="HxW", help="fix the size, multiples of 32 (default: any)")
    parser.add_argument("--precision", default="fp32", help="fp32, fp16 or int8; positions stay fp32 (default fp32)")
    parser.add_argument("--compile", action="store_true", help=".pt2: compile for this kind of machine (AOTInductor)")
    parser.add_argument("--task", choices=("stereo", "flow"), help="what a released .pth file is for (default stereo)")


def run(arguments: argparse.Namespace) -> None:
    from matchattention.exporting.predictor import refuse_exported
    from matchattention.exporting.write import check_request, export
    from matchattention.models.checkpoint import load

    began = time.perf_counter()
    size = None if arguments.size is None else parse_size(arguments.size)
    check_request(Path(arguments.output), size, arguments.precision, arguments.compile)  # before the weights are read
    refuse_exported(arguments.model, "export")
    model = load(arguments.model, task=arguments.task)
    done = export(model, arguments.output, size, arguments.precision, arguments.compile)
    nodes = "" if done.nodes is None else f", {done.nodes} nodes"
    print(f"{done.path}: {done.bytes / 1e6:.1f} MB{nodes}, {time.perf_counter() - began:.0f} s")
    for difference in done.differences:
        height, width = difference.size
        print(f"  {height}x{width}: {difference.mean:.5f} px from PyTorch on average, at most {difference.largest:.3f}")
