"""What only a GPU can show: CUDA graphs, fp16 at real sizes, images that stay there."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import matchattention as ma
from matchattention.bench import parity
from matchattention.bench.network import load_or_create
from matchattention.bench.scenes import image_pair
from matchattention.inference import video
from matchattention.runtime.graph import capture
from matchattention.runtime.runtime import Runtime

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
DEVICE = torch.device("cuda")


@pytest.fixture(scope="module")
def model():
    return load_or_create("rt")[0]


@pytest.mark.parametrize("mode", ["eager-graph", "fused-graph"])
@pytest.mark.parametrize("shape", [(512, 1024), (375, 1242), (512, 2048), (1024, 4096)], ids=str)
def test_rt_in_fp16_is_as_close_to_fp32_as_plain_pytorch(model, mode, shape) -> None:
    found = parity.network(DEVICE, mode, shape, model)
    assert found.fine, found
    assert found.error < 0.02


@pytest.mark.parametrize("name", ["rt", "rt-flow"])
@pytest.mark.parametrize("pairs", [1, 3])
@pytest.mark.parametrize("starts", [False, True], ids=["cold", "warm"])
def test_a_replay_is_the_pass_itself(name, pairs, starts) -> None:
    network = load_or_create(name)[0]
    left, right, _ = image_pair(256, 512, DEVICE)
    views = [view.repeat(pairs, 1, 1, 1) for view in (left, right)]
    start = torch.randn(2 * pairs, 256, 512, 2, device=DEVICE) * 4 if starts else None
    if start is not None and name == "rt":
        start[..., 1] = 0
    for kernels in ("eager", "fused"):
        expected = Runtime(network, DEVICE, "fp16", kernels)(*views, start).clone()
        replayed = Runtime(network, DEVICE, "fp16", f"{kernels}-graph")
        for _ in range(2):
            torch.testing.assert_close(replayed(*views, start), expected, rtol=1e-3, atol=1e-2)


def test_images_on_the_gpu_stay_there(model) -> None:
    left, right, _ = image_pair(256, 512, DEVICE)
    predict = ma.Predictor(model, "cuda", check=False)
    first = predict(left[0], right[0])
    assert {part.device.type for part in first.tensors if part is not None} == {"cuda"}
    arrays = [view[0].permute(1, 2, 0).cpu().numpy() for view in (left, right)]
    for result in (predict(*arrays), predict(left[0], right[0])):
        np.testing.assert_allclose(result.disparity, first.disparity, atol=0.5)
        assert (result.occlusion == first.occlusion).mean() > 0.99
    batch = predict(left.repeat(4, 1, 1, 1), right.repeat(4, 1, 1, 1))
    assert batch.tensors.confidence.shape == (4, 256, 512)


def test_confidence_on_a_gpu_is_the_heads(model) -> None:
    left, right, _ = image_pair(375, 1242, DEVICE)
    predict = ma.Predictor(model, "cuda", check=False)
    found = predict(left[0], right[0])
    judge = predict.judge
    assert judge._fused is not None
    judge._fused = None
    expected = predict(left[0], right[0])
    assert found.error is not None
    assert np.abs(found.confidence - expected.confidence).mean() < 2e-3  # convolutions of other kernels
    assert np.abs(np.log(found.error / expected.error)).mean() < 5e-3


FIRST_CALL = """
import json, sys
import torch, triton
import matchattention as ma
from matchattention.bench.network import load_or_create

missed = []

def listen(src, cache_hit, **more):
    if not cache_hit:
        missed.append(src.name)

triton.knobs.compilation.listener = listen
predict = ma.Predictor(load_or_create("rt")[0], "cuda", mode=sys.argv[1], check=False)
for size in ((256, 512), (352, 992)):
    left, right = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8, device="cuda")
    predict(left, right, initial=predict(left, right)).disparity
print(json.dumps(missed))
"""


@pytest.mark.parametrize("mode", ["auto", "eager"])
def test_a_first_call_finds_every_kernel_compiled(tmp_path, mode) -> None:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIRST_CALL, mode]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == []
    assert "compiling GPU kernels" in done.stderr


def test_what_shows_nothing_is_refused_while_the_gpu_works(model) -> None:
    grey = np.full((256, 512, 3), 128, np.uint8)
    for check in (False, True):
        with pytest.raises(ma.InputError, match="one colour"):
            ma.Predictor(model, "cuda", check=check)(grey, grey)


def test_a_stream_replays_the_fused_graph_from_the_second_frame_on(model) -> None:
    left, right, _ = image_pair(256, 512, DEVICE)
    arrays = tuple(view[0].permute(1, 2, 0).cpu().numpy() for view in (left, right))
    predict = ma.Predictor(model, "cuda", check=False)
    ran, results = [], []
    for result in predict.stream([arrays] * 10):
        ran.append(predict.runtime.ran)
        results.append(result)
    assert ran == ["fused"] + ["fused-graph"] * 9
    # Every result is its own, not the buffer of the next replay.
    assert len({result.tensors.relative_position.data_ptr() for result in results}) == 10


def test_a_stream_of_tensors_on_the_gpu_never_leaves_it(model, monkeypatch) -> None:
    left, right, _ = image_pair(256, 512, DEVICE)
    monkeypatch.setattr(video, "read_pair", lambda *images: pytest.fail("went through the host"))
    predict = ma.Predictor(model, "cuda", check=False)
    results = list(predict.stream([(left[0], right[0])] * 4))
    assert predict.runtime.ran == "fused-graph"
    assert {part.device.type for result in results for part in result.tensors if part is not None} == {"cuda"}


def test_the_operator_replays_forward_and_backward() -> None:
    from matchattention.ops.match_attention.triton_backend import match_attention_triton

    torch.manual_seed(0)
    tensors = [torch.randn(1, 16, 40, 4, 2, device=DEVICE).half() for _ in range(3)]
    tensors.append(torch.randn(1, 16, 40, 1, 2, device=DEVICE) * 3)
    tensors = [tensor.requires_grad_() for tensor in tensors]

    def step():
        out, weights = match_attention_triton(*tensors, (1, 4), "l1", True)
        return torch.autograd.grad(out.float().square().sum() + weights.square().sum(), tensors)

    graph, replayed = capture(step)
    with torch.no_grad():
        for tensor in tensors:
            tensor.mul_(0.5)
    graph.replay()
    for found, expected in zip(replayed, step()):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-3)
