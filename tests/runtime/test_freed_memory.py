"""Large blocks are taken from the system once, not again in every pass."""

import ctypes
import platform
import subprocess
import sys

import pytest
import torch

import matchattention as ma
from matchattention.runtime.cpu import freed_memory
from matchattention.runtime.prepared import prepare
from tests.inference.oracle import TINY

FAULTS = """
import resource, torch
from matchattention.runtime.cpu.freed_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(1 << 24)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

given_back = [faults() for _ in range(20)][-1]
assert keep_freed_memory()
print(given_back, [faults() for _ in range(20)][-1])
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
def test_a_large_block_is_used_again():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    given_back, kept = map(int, done.stdout.split())
    assert kept < 100 < given_back


def test_other_c_libraries_are_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert freed_memory.keep_freed_memory.__wrapped__() is False


def test_networks_on_a_cpu_keep_it(monkeypatch):
    told, network = [], ma.create_model(TINY)
    monkeypatch.setattr(freed_memory, "keep_freed_memory", lambda: told.append(True))
    for dtype in (torch.float32, torch.bfloat16):
        prepare(network, torch.device("cpu"), dtype)
    assert told == [True, True]
