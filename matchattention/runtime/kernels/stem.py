# mypy: disable-error-code="assignment, var-annotated"
"""From uint8 images to the first normed features, for inference."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchattention.ops.triton_overlap import overlapping, wait_for_previous
from matchattention.runtime.kernels.rows import gelu, load_matrix, tile_of_tokens

MOST_CHUNKS = 128  # of an image's statistics: enough programs to fill a GPU; each later program reads all of them
MOST_PROGRAMS = 512  # of an image's norm: each of them puts all chunks together first
VALUES_OF_PROGRAM = 8192


@triton.jit(do_not_specialize=["images", "height", "width", "top", "out_height", "out_width", "tokens"])
def first_convolution_kernel(
    image0_pointer,
    image1_pointer,
    matrix_pointer,
    bias_pointer,
    out_pointer,
    images,
    height,
    width,
    top,
    out_height,
    out_width,
    tokens,
    N: tl.constexpr,
    NB: tl.constexpr,
    T: tl.constexpr,
):
    """3x3 convolution with stride 2 of planar images in [0, 255], mapped to [-1, 1] and padded on the fly.

    The images (images, 3, height, width) are padded by replication, `top` rows above and on the right up to
    2 * out_width; beyond the padded image the convolution sees zeros.
    """
    token, valid = tile_of_tokens(tokens, T)
    ox = (token % out_width).to(tl.int32)
    oy = ((token // out_width) % out_height).to(tl.int32)
    image = token // (out_height * out_width)
    tap = tl.arange(0, 32)[None, :]
    channel = tap // 9
    iy = oy[:, None] * 2 - 1 + (tap % 9) // 3
    ix = ox[:, None] * 2 - 1 + tap % 3
    inside = (iy >= 0) & (iy < 2 * out_height) & (ix >= 0) & (ix < 2 * out_width) & (tap < 27)
    sy = tl.maximum(iy - top, 0)
    sx = tl.minimum(tl.maximum(ix, 0), width - 1)
    at = channel * (height * width) + sy * width + sx
    first = image < images
    own = tl.where(first, image, image - images) * 3 * height * width
    at = own[:, None] + at
    pixel0 = tl.load(image0_pointer + at, mask=inside & first[:, None], other=0).to(tl.float32)
    pixel1 = tl.load(image1_pointer + at, mask=inside & (image >= images)[:, None], other=0).to(tl.float32)
    value = tl.where(inside, (pixel0 + pixel1) / 127.5 - 1.0, 0.0)
    columns = tl.arange(0, NB)
    dtype = matrix_pointer.dtype.element_ty
    matrix = load_matrix(matrix_pointer, tl.arange(0, 32), columns, 27, N)
    total = tl.dot(value.to(dtype), matrix, input_precision="ieee")
    total += tl.load(bias_pointer + columns[None, :], mask=columns[None, :] < N, other=0.0)
    mask = valid[:, None] & (columns[None, :] < N)
    tl.store(out_pointer + token[:, None] * N + columns[None, :], total.to(out_pointer.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["pixels", "chunks", "tiles"])
def statistics_kernel(
    x_pointer,
    partial_pointer,
    pixels,
    chunks,
    tiles,
    C: tl.constexpr,
    CB: tl.constexpr,
    P: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Mean and sum of squared deviations of every channel over a chunk of `tiles` * P pixels of an image.

    The result is (images, chunks, 2, C). Tiles are put together as they come (Chan et al.).
    """
    program = tl.program_id(0)
    image = (program // chunks).to(tl.int64)
    first = (program % chunks) * tiles * P
    channel = tl.arange(0, CB)[None, :]
    mean = tl.zeros((1, CB), tl.float32)
    squares = tl.zeros((1, CB), tl.float32)
    seen = 0.0
    last = tl.minimum(first + tiles * P, pixels)
    wait_for_previous(OVERLAP)
    while first < last:
        pixel = first + tl.arange(0, P)[:, None]
        mask = (pixel < pixels) & (channel < C)
        value = tl.load(x_pointer + (image * pixels + pixel) * C + channel, mask=mask, other=0.0).to(tl.float32)
        count = tl.minimum(P, pixels - first).to(tl.float32)
        tile_mean = tl.sum(value, 0)[None, :] / count
        deviation = tl.where(mask, value - tile_mean, 0.0)
        apart = tile_mean - mean
        share = count / (seen + count)
        squares += tl.sum(deviation * deviation, 0)[None, :] + apart * apart * (seen * share)
        mean += apart * share
        seen += count
        first += P
    at = partial_pointer + program.to(tl.int64) * (2 * C) + channel
    tl.store(at, mean, mask=channel < C)
    tl.store(at + C, squares, mask=channel < C)


@triton.jit(do_not_specialize=["pixels", "chunks", "tiles", "programs_of_image", "own_tiles"])
def instance_norm_gelu_kernel(
    x_pointer,
    partial_pointer,
    out_pointer,
    pixels,
    chunks,
    tiles,
    programs_of_image,
    own_tiles,
    eps,
    C: tl.constexpr,
    CB: tl.constexpr,
    P: tl.constexpr,
    CHUNKS: tl.constexpr,
    OVERLAP: tl.constexpr,
):
    """Put the chunks' statistics together, normalise `own_tiles` * P pixels, GELU."""
    program = tl.program_id(0)
    image = (program // programs_of_image).to(tl.int64)
    channel = tl.arange(0, CB)[None, :]
    chunk = tl.arange(0, CHUNKS)[:, None]
    real = (chunk < chunks) & (channel < C)
    count = tl.where(chunk < chunks, tl.minimum(tl.maximum(pixels - chunk * tiles * P, 0), tiles * P), 0).to(tl.float32)
    at = partial_pointer + ((image * chunks + chunk) * 2) * C + channel
    wait_for_previous(OVERLAP)
    means = tl.load(at, mask=real, other=0.0)
    squares = tl.load(at + C, mask=real, other=0.0)
    mean = tl.sum(means * count, 0)[None, :] / pixels
    apart = means - mean
    variance = (tl.sum(squares, 0)[None, :] + tl.sum(apart * apart * count, 0)[None, :]) / pixels
    scale = 1.0 / tl.sqrt(variance + eps)
    first = (program % programs_of_image) * own_tiles * P
    last = tl.minimum(first + own_tiles * P, pixels)
    while first < last:
        pixel = first + tl.arange(0, P)[:, None]
        mask = (pixel < pixels) & (channel < C)
        place = (image * pixels + pixel) * C + channel
        value = tl.load(x_pointer + place, mask=mask, other=0.0).to(tl.float32)
        result = gelu(((value - mean) * scale).to(out_pointer.dtype.element_ty).to(tl.float32))
        tl.store(out_pointer + place, result.to(out_pointer.dtype.element_ty), mask=mask)
        first += P


def instance_norm_gelu(tokens: Tensor, eps: float = 1e-5) -> Tensor:
    """GELU(InstanceNorm(tokens)) of contiguous (B, H, W, C), in two kernels."""
    images, height, width, channels = tokens.shape
    block = triton.next_power_of_2(channels)
    pixels, share = height * width, max(16, VALUES_OF_PROGRAM // block)
    tiles = -(-pixels // share)
    tiles_of_chunk = -(-tiles // min(MOST_CHUNKS, max(1, VALUES_OF_PROGRAM // block)))
    chunks = -(-tiles // tiles_of_chunk)
    partial = tokens.new_empty((images, chunks, 2, channels), dtype=torch.float32)
    out = torch.empty_like(tokens)
    sizes: dict[str, Any] = {"C": channels, "CB": block, "P": share, "num_warps": 4, **overlapping()}
    statistics_kernel[(images * chunks,)](tokens, partial, pixels, chunks, tiles_of_chunk, **sizes)
    own_tiles = -(-tiles // MOST_PROGRAMS)
    programs = -(-tiles // own_tiles)
    instance_norm_gelu_kernel[(images * programs,)](
        tokens,
        partial,
        out,
        pixels,
        chunks,
        tiles_of_chunk,
        programs,
        own_tiles,
        eps,
        CHUNKS=triton.next_power_of_2(chunks),
        **sizes,
    )
    return out
