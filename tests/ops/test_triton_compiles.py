"""The kernels compile for real GPUs, on a machine without one.

The interpreter runs a kernel's Python; the compiler is stricter. Kernels for wide heads are written so that no tile of
keys or values (16 KB) has to pass through shared memory, which only the compiler can confirm: Triton 3.6 needs none of
it, Triton 3.7 chooses other layouts and passes a chunk of queries (1 KB) or the scores of a block (4 KB). Launches are
replaced by compilations for the architecture in a process of its own, because this one may have Triton in its
interpreter.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

class Absent:
    def get_current_target(self): return GPUTarget("cuda", CAPABILITY, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=None): return 0

driver.set_active(Absent())
launch = JITFunction.run
compiled = []
shared = {}
SCORES = 8 * 8 * 16 * 4  # bytes: 64 tokens, 16 keys, fp32; a tile of keys has 4 channels of each
built = set()

def compile_instead(self, *args, grid, warmup, **kwargs):
    kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
    compiled.append((self.__name__, len(kernel.asm["cubin"])))
    shared.setdefault(self.__name__, []).append(kernel.metadata.shared)
    built.add(kernel.hash)

JITFunction.run = compile_instead

from matchattention.runtime.fused.blocks import FusedStage, pack_position
from matchattention.layers.block import BlockConfig, MATBlock
from matchattention.ops.match_attention.triton_backward import backward
from matchattention.ops.triton_depthwise import convolve, gate_mix_backward
from matchattention.ops.match_attention.triton_forward import forward

def operator(channels, window, per_head, dtype, size=(2, 8, 40)):
    fused = torch.zeros(*size, 3 * 4 * channels, dtype=dtype)
    q, k, v = (part.unflatten(-1, (4, channels)) for part in fused.chunk(3, -1))
    position = torch.zeros(*size, 4 if per_head else 1, 2)
    out, weights = forward(q, k, v, position, window, False, True)
    backward(out, weights, q, k, v, position, window, False)

operator(2, (1, 4), False, torch.float16)
operator(2, (1, 4), True, torch.bfloat16)
operator(24, (4, 4), True, torch.float32)
operator(64, (4, 4), False, torch.float32)
operator(64, (4, 4), False, torch.float16)
for name in ("match_attention_wide_forward_kernel", "match_attention_coefficients_kernel"):
    assert max(shared[name]) <= SCORES, (name, shared[name])
before = len(built)
operator(64, (4, 4), False, torch.float16, (1, 9, 16))
assert len(built) == before, "another size of image built its kernels anew"
x, weight, bias = torch.zeros(2, 8, 40, 48, dtype=torch.float16), torch.zeros(48, 1, 3, 3), torch.zeros(48)
convolve(x, weight, bias)
gate_mix_backward(x, torch.zeros(2, 8, 40, 96, dtype=torch.float16), weight, bias)
config = BlockConfig(
    channels=32, heads=4, compression=4, window=(1, 4), similarity="l1", attention="match", gate=True,
    self_sees_cross=True, self_mask=False, keep_y=False, depth=0,
)
stage = FusedStage([MATBlock(config), MATBlock(config)], torch.float16)
features = torch.zeros(2, 8, 40, 32, dtype=torch.float16)
stage(features, pack_position(torch.zeros(2, 8, 40, 2), torch.zeros(2, 8, 40, 4, 2)))
assert all(size > 0 for _, size in compiled)
print(len({name for name, _ in compiled}))
"""


@pytest.mark.parametrize("capability", [90])
def test_every_kind_of_kernel(capability):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("CAPABILITY", str(capability))],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) == 10
