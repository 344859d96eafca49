"""One source for Triton and torch: twins of functions, and machines without Triton."""

import subprocess
import sys

import pytest
import torch

from matchattention.synth.rays import noise
from matchattention.synth.rays.dialect import HAS_TRITON, as_torch

WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None  # importing it fails from here on

from dataclasses import replace

import torch

from matchattention.synth.world.config import PRESETS
from matchattention.synth.rays.dialect import HAS_TRITON
from matchattention.synth.stream.scene_stream import SceneStream

assert not HAS_TRITON
batch = SceneStream(replace(PRESETS["small"], photos=0.0), (16, 24), 1, 3, "cpu").next()
print(float(batch.field0.abs().sum()))
"""


@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
def test_scenes_do_not_need_triton():
    from dataclasses import replace

    from matchattention.synth.stream.scene_stream import SceneStream
    from matchattention.synth.world.config import PRESETS

    done = subprocess.run([sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    batch = SceneStream(replace(PRESETS["small"], photos=0.0), (16, 24), 1, 3, "cpu").next()
    assert float(done.stdout) == pytest.approx(float(batch.field0.abs().sum()), rel=1e-5)


def test_twins_work_on_tensors_and_numbers():
    sine = as_torch(noise.sine)
    x = torch.linspace(-20, 20, 2001)
    assert (sine(x) - torch.sin(x)).abs().max() < 2e-3
    assert sine(1.25) == pytest.approx(float(sine(torch.tensor(1.25))), abs=1e-6)
    assert as_torch(noise.sine) is sine


def test_hash_is_uniform_and_uncorrelated():
    hash_cell = as_torch(noise.hash_cell)
    i, j = torch.meshgrid(
        torch.arange(-50, 50, dtype=torch.int32), torch.arange(-50, 50, dtype=torch.int32), indexing="ij"
    )
    h = hash_cell(i, j, torch.tensor(7, dtype=torch.int32))
    assert h.min() >= 0
    assert h.max() < 1
    assert abs(h.mean().item() - 0.5) < 0.01
    assert abs(torch.corrcoef(torch.stack((h[1:].flatten(), h[:-1].flatten())))[0, 1].item()) < 0.03
    assert abs(torch.corrcoef(torch.stack((h[:, 1:].flatten(), h[:, :-1].flatten())))[0, 1].item()) < 0.03
    assert torch.equal(as_torch(noise.fraction)(torch.tensor([-0.25, 1.5])), torch.tensor([0.75, 0.5]))
