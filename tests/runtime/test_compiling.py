"""Kernels compile for every GPU that counts, within what it has; a first call's workers leave them for the next one.

No GPU is needed. Programs run in processes of their own: this one may have Triton in its interpreter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from matchattention.runtime.compiling import Progress, compile_job, worker_command
from tests.inference.oracle import TINY

# Shared memory of a program, bytes, by compute capability (CUDA programming guide, "technical specifications").
SHARED = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
REGISTERS = 65536  # of a multiprocessor: a program's threads share them

HEAD = """
import json, pathlib, re, subprocess, sys, tempfile
from dataclasses import replace
import torch, triton
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS
from matchattention.runtime.compiling import kernels_of, kernels_of_network, standing_in_for

TOOL = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
ONCE = {"encoder_depths": (1, 1, 1, 1), "decoder_depths": (1, 1, 1, 1), "initial_layers": 1}

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
config = replace(NETWORKS[sys.argv[1]].config, **ONCE)
print(json.dumps(needs(kernels_of_network(config, torch.float16, (1, 3, 512, 1024)), int(sys.argv[2]))))
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
config = replace(NETWORKS["rt"].config, channels=(32, 32, 32, 32), **ONCE)
sizes = ((512, 1024), (375, 1022), (352, 992), (32, 32))
print(json.dumps([list(kernels_of_network(config, torch.float16, (1, 3, *size))) for size in sizes]))
"""
)


def run(program: str, *arguments: object):
    """What a program prints, as JSON."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "OMP_NUM_THREADS": "1"}
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
    assert {"block_attention_kernel", "contract_kernel", "convex_kernel", "stereo_transport_kernel"} <= names
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


@pytest.mark.kernels
def test_workers_leave_every_kernel_in_the_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from dataclasses import replace

    config = replace(TINY, encoder_depths=(1, 1, 1, 1), initial_layers=0)
    job = {"config": config.to_dict(), "dtype": "float16", "shape": [1, 3, 64, 96], "capability": 90}
    said: list[tuple[int, int]] = []
    total = compile_job(job, 2, lambda done, total: said.append((done, total)))
    assert total > 10
    assert said[-1] == (total, total)
    assert len({path.parent for path in tmp_path.rglob("*.cubin")}) == total
    assert compile_job(job, 2, lambda done, total: pytest.fail("compiled again")) == 0
    assert compile_job({**job, "shape": [1, 3, 96, 96]}, 2, lambda done, total: None) == 0
    (marker,) = tmp_path.glob("matchattention-*.json")
    marker.unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")}
    assert compile_job(job, 1, lambda done, total: None) == total  # found, not made anew
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")} == before


def test_a_worker_that_fails_leaves_no_marker(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    job = {"config": TINY.to_dict(), "dtype": "no number format", "shape": [1, 3, 64, 96], "capability": 90}
    assert compile_job(job, 1, lambda done, total: None) == 0
    assert not list(tmp_path.glob("matchattention-*"))


def test_a_worker_finds_the_package_and_no_file_of_the_folder_somebody_works_in(tmp_path) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit('a file of somebody else')")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = worker_command({"config": TINY.to_dict(), "dtype": "no number format"})
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600)
    assert "no attribute 'no number format'" in done.stderr


def test_progress_is_one_line_at_either_end_where_there_is_no_terminal(capsys) -> None:
    progress = Progress()
    for done in (0, 0, 1, 2, 3, 3):
        progress(done, 3)
    assert capsys.readouterr().err.splitlines() == [
        "compiling GPU kernels, once on this machine: 0 of 3",
        "compiling GPU kernels, once on this machine: 3 of 3",
    ]
