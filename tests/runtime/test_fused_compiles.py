"""The fused network's kernels compile for a Hopper GPU, and not anew for every image size; no GPU is needed.

Launches are replaced by compilations, in a process of its own: this one may have Triton in its interpreter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

STAND_IN = """
import json
import torch
from triton import FutureKernel
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

class Absent:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=None): return 0

driver.set_active(Absent())
launch = JITFunction.run
kernels, futures, binaries = {}, [], []

def compile_instead(self, *args, grid, warmup, **kwargs):
    kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
    if isinstance(kernel, FutureKernel):
        futures.append(kernel)
    else:
        kernels[kernel.hash] = self.__name__
        binaries.append(kernel.asm["cubin"])

JITFunction.run = compile_instead
"""

SIZES = """
from matchattention.runtime.fused_network import FusedNetwork
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork

config = NetworkConfig(
    channels=(32, 32, 32, 32), encoder_depths=(1, 1, 1, 1), decoder_depths=(1, 1, 1, 1), initial_layers=1,
)
network = FusedNetwork(MatchNetwork(config), torch.float16).to("meta")
made = {}
for size in ((512, 1024), (375, 1022), (352, 992), (32, 32)):
    network(*(torch.empty(1, 3, *size, dtype=torch.uint8, device="meta") for _ in range(2)))
    made["%dx%d" % size] = dict(kernels)
assert len(futures) > len(made["512x1024"])  # a first pass compiles all of them side by side
assert all(future.kernel is not None for future in futures)
print(json.dumps(made))
"""


# RT's blocks at 1/32: rows of features fill the registers that a badly chosen layout would need.
WIDE = """
import pathlib, re, subprocess, tempfile, triton
from matchattention.runtime.fused_blocks import FusedStage
from matchattention.models.registry import create_model

stage = FusedStage([create_model("rt").stages[0][0]], torch.float16).to("meta")
stage(*(torch.empty(2, 16, 32, c, dtype=t, device="meta") for c, t in ((256, torch.float16), (16, torch.float32))))
tool = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
used = []
for binary in binaries:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        pathlib.Path(file.name).write_bytes(binary)
        text = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True).stdout
    used.append([int(number) for number in re.search(r"REG:(\\d+) STACK:(\\d+)", text).groups()])
print(json.dumps(used))
"""


# XL's widths, one block a scale, with what lies between its matrix products.
LEAN = """
import contextlib
from dataclasses import replace
from matchattention.runtime.frozen import replace_layers
from matchattention.runtime.lean_network import make_lean
from matchattention.layers import families
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS
import matchattention.ops.kernels

once = {"encoder_depths": (1, 1, 1, 1), "decoder_depths": (1, 1, 1, 1), "initial_layers": 1}
with torch.device("meta"):
    network = MatchNetwork(replace(NETWORKS["xl"].config, **once))
precise = {p for p in network.parameters() if p.shape in ((), (2,))}
for parameter in set(network.parameters()) - precise:
    parameter.data = parameter.data.half()
replace_layers(network.requires_grad_(False))
make_lean(network)

def attend(q, k, v, position, window, *more, need_weights=True, **named):
    return torch.empty_like(v), v.new_empty((*v.shape[:4], 16)) if need_weights else None

families.match_attention = attend
matchattention.ops.kernels.has_kernel = lambda tokens: True
torch.autocast = lambda *arguments, **named: contextlib.nullcontext()
image = torch.empty(1, 3, 512, 1024, device="meta")
with torch.no_grad():
    encode = network.encoder.forward
    network.encoder.forward = lambda images: encode(images.half())
    assert network(image, image).field.shape == (2, 512, 1024, 2)
""" + WIDE[WIDE.index("tool =") :]
LEAN = LEAN.replace("\ntool =", "\nimport pathlib, re, subprocess, tempfile, triton\ntool =")


def run(program: str):
    """What a program prints, as JSON."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", STAND_IN + program],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_one_set_of_kernels_serves_all_sizes():
    made = run(SIZES)
    first, last = made["512x1024"], made["352x992"]
    assert len(set(first.values())) == 10
    # Depthwise kernels know whether sizes are multiples of 16; the others know none.
    assert {name for key, name in last.items() if key not in first} <= {"depthwise_forward_kernel"}


def test_wide_blocks_stay_in_registers():
    used = run(WIDE)
    assert len(used) == 5
    assert max(registers for registers, _ in used) <= 128
    assert max(stack for _, stack in used) <= 16


def test_what_lies_between_wide_products_stays_in_registers():
    used = run(LEAN)
    assert len(used) > 30
    assert max(stack for _, stack in used) <= 16
