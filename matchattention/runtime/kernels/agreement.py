# mypy: disable-error-code="assignment, var-annotated"
"""Occlusion and confidence of both fields in one kernel; `inference.consistency` has the plain twin."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["height", "width", "pixels"])
def agreement_kernel(
    first_pointer,
    second_pointer,
    occlusion_pointer,
    confidence_pointer,
    height,
    width,
    pixels,
    threshold,
    slope,
    scale,
    T: tl.constexpr,
):
    """T pixels: follow the match, come back, and see how far from itself a pixel lands."""
    pixel = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    valid = pixel < pixels
    x = (pixel % width).to(tl.float32)
    y = ((pixel // width) % height).to(tl.float32)
    image = second_pointer + (pixel - pixel % (height * width)) * 2
    offset_x = tl.load(first_pointer + pixel * 2, mask=valid, other=0.0)
    offset_y = tl.load(first_pointer + pixel * 2 + 1, mask=valid, other=0.0)
    there_x = x + offset_x
    there_y = y + offset_y
    # Half a pixel beyond the last centre is still that pixel; a broken position is smaller than nothing.
    visible = (there_x > -0.5) & (there_x < width - 0.5) & (there_y > -0.5) & (there_y < height - 0.5)
    at_x = tl.minimum(tl.maximum(tl.where(visible, there_x, 0.0), 0.0), width - 1.0)
    at_y = tl.minimum(tl.maximum(tl.where(visible, there_y, 0.0), 0.0), height - 1.0)
    left = tl.floor(at_x)
    top = tl.floor(at_y)
    share_x = at_x - left
    share_y = at_y - top
    column = left.to(tl.int64)
    row = top.to(tl.int64)
    right = tl.minimum(column + 1, width - 1)
    bottom = tl.minimum(row + 1, height - 1)
    gap_x = offset_x
    gap_y = offset_y
    for corner in tl.static_range(4):
        if corner % 2 == 0:
            across, weight_x = column, 1.0 - share_x
        else:
            across, weight_x = right, share_x
        if corner < 2:
            down, weight_y = row, 1.0 - share_y
        else:
            down, weight_y = bottom, share_y
        at = image + (down * width + across) * 2
        gap_x += weight_x * weight_y * tl.load(at, mask=valid, other=0.0)
        gap_y += weight_x * weight_y * tl.load(at + 1, mask=valid, other=0.0)
    gap = tl.sqrt(gap_x * gap_x + gap_y * gap_y)
    slack = threshold + slope * tl.sqrt(offset_x * offset_x + offset_y * offset_y)
    agrees = visible & (gap <= slack)
    confidence = tl.where(visible & (gap == gap), tl.exp(-gap / scale), 0.0)
    tl.store(occlusion_pointer + pixel, (agrees == 0).to(tl.int8), mask=valid)
    tl.store(confidence_pointer + pixel, confidence, mask=valid)


def agreement(first: Tensor, second: Tensor, threshold: float, slope: float, scale: float) -> tuple[Tensor, Tensor]:
    """Occlusion (B, H, W) bool and confidence (B, H, W) fp32 from fields (B, H, W, 2) px of both views."""
    first, second = first.contiguous(), second.contiguous()
    shape = first.shape[:-1]
    occlusion = torch.empty(shape, dtype=torch.bool, device=first.device)
    confidence = torch.empty(shape, dtype=torch.float32, device=first.device)
    pixels, tile = occlusion.numel(), 512
    if pixels:
        agreement_kernel[(-(-pixels // tile),)](
            first,
            second,
            occlusion.view(torch.int8),
            confidence,
            shape[-2],
            shape[-1],
            pixels,
            threshold,
            slope,
            scale,
            T=tile,
            num_warps=4,
        )
    return occlusion, confidence
