"""The kernels compile for a Hopper GPU, on a machine that has none.

Triton's interpreter accepts more than its compiler does (Python numbers where tensors are needed, for one), so
parity in the interpreter alone would let a kernel through that no GPU can run.
"""

import os
import subprocess
import sys

import pytest

from matchattention.synth.rays.dialect import HAS_TRITON

PROGRAM = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from matchattention.synth.photos import layer_cast, plane_cast
from matchattention.synth.rays.cast_triton import cast_kernel
from matchattention.synth.rays.dispatch import KINDS
from matchattention.synth.rays.shade_triton import shade_kernel

SLOTS = {"SLOTS": tuple(range(0, 16 * len(KINDS) + 1, 16))}


def build(kernel, constants, **kinds):
    integers = {"counts", "hit", "kinds", "photos", "starts"}
    sizes = {"height", "width", "views", "total", "columns", "ambience_columns", "shadows"}
    kinds = {**dict.fromkeys(integers, "*i32"), **dict.fromkeys(sizes, "i32"), **kinds}
    kinds |= dict.fromkeys(constants, "constexpr")
    signature = {name: kinds.get(name, "*fp32") for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    built = compile(ASTSource(kernel, signature, places), target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert "cubin" in built.asm


build(cast_kernel, {**SLOTS, "SAMPLES": 4, "SHIFTED": False, "TILE_H": 8, "TILE_W": 16})
build(cast_kernel, {**SLOTS, "SAMPLES": 1, "SHIFTED": True, "TILE_H": 16, "TILE_W": 32})
sizes = {"SAMPLES": 4, "SHADOW_SIZE": 384, "PHOTO_SIZE": 256, "LEVELS": 7, "BLOCK": 128}
build(shade_kernel, {**SLOTS, **sizes})
sizes = dict.fromkeys(("pairs", "sheet_count", "sheet_width", "sheet_height", "pixels"), "i32")
build(layer_cast.cast_kernel, {"LAYERS": 8, "SIZE": 256}, labels="*u8", sheets="*i32", layer_out="*i32", **sizes)
planes = {"LAYERS": 17, "NEAREST": 0.1, "SIZE": 256}
build(plane_cast.cast_kernel, planes, labels="*u8", shown="*u8", top_out="*i64", **sizes)
print("compiled")
"""


@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_kernels_compile_for_hopper():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "compiled", done.stderr[-3000:]
