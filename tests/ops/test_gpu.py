"""The operator's kernels at the shapes of RT, XL and the paper's table, forward and backward, on a GPU."""

import pytest
import torch

from matchattention.bench.parity import compare
from matchattention.ops.match_attention.reference import match_attention_reference

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
FP16, BF16, FP32 = torch.float16, torch.bfloat16, torch.float32


def inputs(size, heads, channels, dtype, per_head, joint):
    """q, k, v as slices of one projection (as the network has them) or apart, and piecewise smooth positions."""
    torch.manual_seed(0)
    width = heads * channels
    if joint:
        whole = torch.randn(*size, 3 * width, device="cuda").to(dtype)
        q, k, v = (whole[..., i * width : (i + 1) * width].unflatten(-1, (heads, channels)) for i in range(3))
    else:
        q, k, v = (torch.randn(*size, heads, channels, device="cuda").to(dtype) for _ in range(3))
    position = torch.randn(*size, heads if per_head else 1, 2, device="cuda") * 3
    position[:, :, ::7] -= 9.3
    return q, k, v, position


@pytest.mark.parametrize("dtype", [FP16, BF16, FP32], ids=["fp16", "bf16", "fp32"])
@pytest.mark.parametrize(
    ("size", "heads", "channels", "window", "similarity", "per_head", "joint"),
    [
        ((2, 33, 70), 4, 2, (1, 4), "l1", True, True),
        ((2, 33, 70), 4, 2, (1, 4), "l1", False, True),
        ((2, 16, 32), 4, 16, (1, 4), "l1", False, False),
        ((1, 9, 31), 3, 5, (1, 4), "dot", True, False),
        ((1, 9, 31), 4, 4, (1, 8), "l1", False, False),
        ((1, 20, 27), 4, 24, (4, 4), "l1", True, False),
        ((1, 20, 27), 4, 64, (4, 4), "l1", False, False),
        ((2, 20, 27), 2, 8, (4, 4), "dot", True, True),
    ],
    ids=["rt-self", "rt-cross", "rt-coarse", "odd-dot", "1x8", "xl", "table-s3", "2d-dot"],
)
def test_as_good_as_plain_pytorch(size, heads, channels, window, similarity, per_head, joint, dtype) -> None:
    from matchattention.ops.match_attention.triton_backend import match_attention_triton

    found = compare(
        lambda *call: match_attention_triton(*call, window, similarity, True),
        lambda *call: match_attention_reference(*call, window, similarity, True),
        inputs(size, heads, channels, dtype, per_head, joint),
        gradients=True,
    )
    assert found.fine, found
