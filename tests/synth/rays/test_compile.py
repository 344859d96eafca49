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

from matchattention.synth.rays.cast_triton import cast_kernel
from matchattention.synth.rays.dispatch import KINDS
from matchattention.synth.rays.shade_triton import shade_kernel

SLOTS = {"SLOTS": tuple(range(0, 16 * len(KINDS) + 1, 16))}


def build(kernel, constants):
    integers = {"counts", "hit", "kinds", "photos", "starts"}
    sizes = {"height", "width", "views", "total", "columns", "ambience_columns", "shadows"}
    signature = {
        name: "constexpr" if name in constants else "i32" if name in sizes else "*i32" if name in integers else "*fp32"
        for name in kernel.arg_names
    }
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    built = compile(ASTSource(kernel, signature, places), target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert "cubin" in built.asm


build(cast_kernel, {**SLOTS, "SAMPLES": 4, "SHIFTED": False, "TILE_H": 8, "TILE_W": 16})
build(cast_kernel, {**SLOTS, "SAMPLES": 1, "SHIFTED": True, "TILE_H": 16, "TILE_W": 32})
sizes = {"SAMPLES": 4, "SHADOW_SIZE": 384, "PHOTO_SIZE": 256, "LEVELS": 7, "BLOCK": 128}
build(shade_kernel, {**SLOTS, **sizes})
print("compiled")
"""


@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_kernels_compile_for_hopper():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "compiled", done.stderr[-3000:]
