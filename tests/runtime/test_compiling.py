"""Kernels compile for every GPU that counts, within what it has; a first call's forks leave them for the next one.

No GPU is needed. Programs run in processes of their own: this one may have Triton in its interpreter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from matchattention.runtime.compiling import Progress

# Shared memory of a program, bytes, by compute capability (CUDA programming guide, "technical specifications").
SHARED = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
REGISTERS = 65536  # of a multiprocessor: a program's threads share them

HEAD = """
import json, pathlib, re, subprocess, sys, tempfile
from dataclasses import replace
import torch, triton
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS
from matchattention.runtime.compiling import kernels_of, standing_in_for
from matchattention.runtime.fused.network import FusedNetwork

TOOL = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ONCE = {"encoder_depths": (1, 1, 1, 1), "decoder_depths": (1, 1, 1, 1), "initial_layers": 1}

def fused(config):
    with torch.device("meta"):
        return FusedNetwork(MatchNetwork(config), torch.float16)

def kernels_of_network(network, height, width):
    image = torch.empty(1, 3, height, width, dtype=torch.uint8, device="meta")
    # The estimate of flow has no kernels of ours, and cannot run without numbers.
    start = torch.empty(2, height, width, 2, device="meta") if network.config.task == "flow" else None
    with torch.inference_mode():
        return kernels_of(lambda: network(image, image, start))

def needs(found, capability):
    rows = []
    with standing_in_for(capability):
        for name, compile_kernel in found.items():
            made = compile_kernel()
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                pathlib.Path(file.name).write_bytes(made.asm["cubin"])
                command = [TOOL, "--dump-resource-usage", file.name]
                text = subprocess.run(command, capture_output=True, text=True).stdout
            used = re.search(r"REG:(\\d+) STACK:(\\d+)", text)
            registers, stack = (int(number) for number in used.groups()) if used else (0, 0)
            rows.append([name.split()[0], made.metadata.shared, registers, stack, made.metadata.num_warps])
    return rows
"""
FUSED = (
    HEAD
    + """
from matchattention.layers.confidence_head import ConfidenceHead, Evidence
from matchattention.runtime.fused.confidence import FusedHead
from matchattention.runtime.kernels.agreement import agreement

config = replace(NETWORKS[sys.argv[1]].config, **ONCE)
found = kernels_of_network(fused(config), 512, 1024)
with torch.device("meta"):
    field, position = torch.empty(1, 512, 1024, 2), torch.empty(1, 128, 256, 2)
    features = torch.empty(1, 128, 256, config.channels[0]).half()
    evidence = Evidence(features, position, position, field, field[..., 0])
    head = FusedHead(ConfidenceHead(config.channels[0]))
with torch.no_grad():
    found |= kernels_of(lambda: (agreement(field, field, 1.5, 0.02, 2.0), head(evidence, 1.0, 0.6827)))
print(json.dumps(needs(found, int(sys.argv[2]))))
"""
)
# XL's widths, one block a scale, with what lies between its matrix products.
LEAN = (
    HEAD
    + """
import contextlib
from matchattention.layers import families
from matchattention.ops import kernels
from matchattention.runtime.lean.network import make_lean
from matchattention.runtime.prepared import replace_layers

with torch.device("meta"):
    network = MatchNetwork(replace(NETWORKS["xl"].config, **ONCE))
precise = {p for p in network.parameters() if p.shape in ((), (2,))}
for parameter in set(network.parameters()) - precise:
    parameter.data = parameter.data.half()
replace_layers(network.requires_grad_(False))
make_lean(network)

def attend(q, k, v, position, window, *more, need_weights=True, **named):
    return torch.empty_like(v), v.new_empty((*v.shape[:4], 16)) if need_weights else None

families.match_attention = attend
kernels.has_kernel = lambda tokens: True
torch.autocast = lambda *arguments, **named: contextlib.nullcontext()
image = torch.empty(1, 3, 512, 1024, device="meta")
encode = network.encoder.forward
network.encoder.forward = lambda images: encode(images.half())
with torch.no_grad():
    print(json.dumps(needs(kernels_of(lambda: network(image, image)), int(sys.argv[1]))))
"""
)
SIZES = (
    HEAD
    + """
network = fused(replace(NETWORKS["rt"].config, channels=(32, 32, 32, 32), **ONCE))
sizes = ((512, 1024), (375, 1022), (352, 992), (32, 32))
print(json.dumps([list(kernels_of_network(network, *size)) for size in sizes]))
"""
)
SMALL = """
import json, pathlib, sys, threading
import torch, triton
from triton.runtime.jit import JITFunction
from matchattention.runtime import compiling
from matchattention.runtime.compiling import compile_ahead, kernels_of
from matchattention.runtime.kernels.norm import layer_norm

def norm(width, dtype=torch.float16):
    layer_norm(torch.empty(8, width, dtype=dtype, device="meta"), torch.empty(width, device="meta"), 1e-5)
"""
AHEAD = (
    SMALL
    + """
def ahead(*widths):
    said.clear()
    return [compile_ahead(lambda: [norm(width) for width in widths], 90), max(said, default=0)]

said = []
compiling.Progress = lambda: lambda done, total: said.append(done)
rows = [ahead(32, 64, 32), ahead(64, 32)]
compiling._met.clear()
rows += [ahead(64, 32), ahead(64, 128)]
cubins = len({path.parent for path in pathlib.Path(compiling._marker([], 90)).parent.rglob("*.cubin")})
hits = []
triton.knobs.compilation.listener = lambda cache_hit, **more: hits.append(cache_hit)
with compiling.standing_in_for(90):
    for launch in kernels_of(lambda: (norm(32), norm(64), norm(256))).values():
        launch()
print(json.dumps([*rows, cubins, hits]))
"""
)
BROKEN = (
    SMALL
    + """
launch = JITFunction.run
def run(self, *arguments, **named):
    assert named["N"] != 64, "no such kernel"
    return launch(self, *arguments, **named)

JITFunction.run = run
compiled = compile_ahead(lambda: (norm(32), norm(64)), 90)
markers = pathlib.Path(compiling._marker([], 90)).parent.glob("matchattention-*")
print(json.dumps([compiled, len(list(markers)), compile_ahead(lambda: 1 / 0, 90)]))
"""
)
THREADS = (
    SMALL
    + """
launched = []
JITFunction.run = usual = lambda self, *arguments, **named: launched.append(threading.current_thread().name)

def both():
    norm(32)
    other = threading.Thread(target=norm, args=(64,), name="first")
    other.start()
    other.join()

assert len(kernels_of(both)) == 1
entered, release = threading.Event(), threading.Event()
first = threading.Thread(target=kernels_of, args=(lambda: (entered.set(), release.wait()),))
first.start()
entered.wait()
second = threading.Thread(target=kernels_of, args=(lambda: norm(32),))
second.start()
second.join(0.2)
release.set()
first.join()
second.join()
assert JITFunction.run is usual
print(json.dumps(launched))
"""
)


def run(program: str, *arguments: object, environment: dict[str, str] | None = None):
    """What a program prints, as JSON."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1", **(environment or {})}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).resolve().parents[2],
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_fits(rows, capability: int) -> None:
    """Kernels fit a program's shared memory and registers; what does not stay in registers would go through memory."""
    for name, shared, registers, stack, warps in rows:
        assert shared <= SHARED[capability], f"{name} needs {shared} bytes of shared memory on sm_{capability}"
        assert 0 < registers * 32 * warps <= REGISTERS, f"{name} needs {registers} registers on sm_{capability}"
        assert stack <= 64, f"{name} spills {stack} bytes on sm_{capability}"


@pytest.mark.kernels
@pytest.mark.parametrize("capability", SHARED)
def test_fused_rt_fits(capability: int) -> None:
    rows = run(FUSED, "rt", capability)
    names = {name for name, *_ in rows}
    expected = {
        "block_attention_kernel",
        "contract_kernel",
        "convex_kernel",
        "stereo_transport_kernel",
        "decide_kernel",
    }
    assert expected <= names
    assert_fits(rows, capability)


@pytest.mark.kernels
@pytest.mark.parametrize("capability", SHARED)
def test_fused_flow_and_lean_xl_fit(capability: int) -> None:
    assert_fits(run(FUSED, "rt-flow", capability), capability)
    rows = run(LEAN, capability)
    assert len(rows) > 20
    assert_fits(rows, capability)


def test_one_set_of_kernels_serves_all_sizes() -> None:
    first, _, last, _ = run(SIZES)
    # Depthwise kernels know whether sizes are multiples of 16; small maps share their columns.
    assert len({name.split()[0] for name in first}) == 10
    extra = {name.split()[0] for name in set(last) - set(first)}
    assert extra <= {"depthwise_forward_kernel"}


def test_forks_leave_every_kernel_in_the_cache(tmp_path) -> None:
    first, again, marked, other, cubins, hits = run(AHEAD, environment={"TRITON_CACHE_DIR": str(tmp_path)})
    assert first == [2, 2]
    assert again == [0, 0]  # met by this process
    assert marked == [0, 0]  # an earlier one left a marker
    assert other == [1, 1]  # of two kernels one is new
    assert cubins == 3
    assert hits == [True, True, False]  # what a launch finds, and what was not compiled ahead


def test_what_cannot_be_compiled_is_left_to_its_launch(tmp_path) -> None:
    compiled, markers, failed = run(BROKEN, environment={"TRITON_CACHE_DIR": str(tmp_path)})
    assert (compiled, markers) == (1, 0)  # of two kernels
    assert failed == 0  # nor is an error of the function itself


def test_only_the_thread_that_asks_goes_without_its_launches() -> None:
    assert run(THREADS) == ["first"]


def test_progress_is_one_line_at_either_end_where_there_is_no_terminal(capsys) -> None:
    progress = Progress()
    for done in (0, 0, 1, 2, 3, 3):
        progress(done, 3)
    assert capsys.readouterr().err.splitlines() == [
        "compiling GPU kernels, once on this machine: 0 of 3",
        "compiling GPU kernels, once on this machine: 3 of 3",
    ]
