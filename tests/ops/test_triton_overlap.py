"""Kernels that begin early wait before they touch what another kernel writes; where a GPU cannot, nobody asks it to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

HEAD = """
import json, re
from dataclasses import replace
import torch
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS
from matchattention.ops import triton_overlap
from matchattention.runtime.compiling import kernels_of, standing_in_for
"""
# What stands between a kernel's beginning and its wait may load weights, and stores nothing.
WAITS = (
    HEAD
    + """
from matchattention.runtime.fused.network import FusedNetwork

ONCE = {"encoder_depths": (1, 1, 1, 1), "decoder_depths": (1, 1, 1, 1), "initial_layers": 1}
config = replace(NETWORKS["rt"].config, channels=(32, 32, 32, 32), **ONCE)
triton_overlap.OVERLAP = True
rows = []
with standing_in_for(90), torch.inference_mode():
    with torch.device("meta"):
        network = FusedNetwork(MatchNetwork(config), torch.float16)
        image = torch.empty(1, 3, 64, 96, dtype=torch.uint8)
    for name, build in kernels_of(lambda: network(image, image)).items():
        made = build()
        before, wait, _ = made.asm["ptx"].partition("griddepcontrol.wait")
        loads = len(re.findall(r"ld[.]global|cp[.]async", before))
        rows.append([name.split()[0], made.metadata.launch_pdl, bool(wait), "st.global" in before, loads])
print(json.dumps(rows))
"""
)
CAPABILITIES = (
    HEAD
    + """
found = []
for wanted in (False, True):
    triton_overlap.OVERLAP = wanted
    for capability in (80, 89, 90, 120):
        with standing_in_for(capability):
            found.append(triton_overlap.overlapping()["OVERLAP"])
    found.append(triton_overlap.overlapping()["OVERLAP"])
print(json.dumps(found))
"""
)
# Nine weights and a bias; a tile of a projection's matrix.
WEIGHTS_LOADED_EARLY = {"depthwise_forward_kernel": 10, "norm_project_kernel": 16}


def run(program: str):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=root, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_only_where_it_is_wanted_and_the_gpu_can() -> None:
    assert run(CAPABILITIES) == [False] * 5 + [False, False, True, True, False]


@pytest.mark.kernels
def test_every_kernel_that_begins_early_waits() -> None:
    rows = run(WAITS)
    assert {name for name, early, *_ in rows if not early} == {"first_convolution_kernel", "convex_kernel"}
    for name, early, waits, stores, loads in rows:
        assert early == waits, name
        if early:
            assert not stores, name
            assert loads <= WEIGHTS_LOADED_EARLY.get(name, 0), (name, loads)
