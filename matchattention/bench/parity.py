"""Is every kernel right on this machine? Each against its plain twin, at the shapes that networks have.

Errors are against fp64. A kernel passes when it is at most twice as far off as plain PyTorch is in the same number
format: tolerances that calibrate themselves. `matchattention doctor` prints the rows, `pytest -m gpu` asserts them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from matchattention.bench.network import load_or_create, plain_operations
from matchattention.bench.scenes import image_pair
from matchattention.models.network import MatchNetwork
from matchattention.ops import kernels

NETWORK_FLOOR = 1e-3  # px: what a network of kernels may be off beside twice the plain one's error
_TIMES = 2.0  # as far from the truth as plain PyTorch in the same number format

Function = Callable[..., Any]


class Parity(NamedTuple):
    """How far a kernel is from the truth, and how far it may be.

    Attributes:
        error: largest difference, relative to the largest value where that is above one; of networks the mean in px.
        allowed: `_TIMES` the plain twin's own, and what the number format cannot hold.
    """

    error: float
    allowed: float

    @property
    def fine(self) -> bool:
        return self.error <= self.allowed  # nan is not


def why_not(device: torch.device) -> str | None:
    """Why no kernel runs here, or None."""
    if not kernels.TRITON_IS_INSTALLED:
        return "Triton is not installed"
    if device.type != "cuda":
        return "kernels need a CUDA GPU"
    return None


def cases(device: torch.device, dtype: torch.dtype = torch.float16) -> dict[str, Callable[[], Parity]]:
    """Every kernel but the operator's, by name."""
    made: dict[str, Callable[[], Parity]] = {}
    for channels in (64, 512):
        for gated in (False, True):
            name = f"{'ConvGLU mix' if gated else 'depthwise 3x3'}, {channels} channels"
            made[name] = functools.partial(convolution, device, dtype, channels, gated)
    made |= {f"LayerNorm, {width} wide": functools.partial(norm, device, dtype, width) for width in (42, 1538)}
    made |= {f"instance norm, {width} wide": functools.partial(stem_norm, device, dtype, width) for width in (16, 192)}
    made["lean block, 384 channels"] = functools.partial(lean_block, device, dtype, 384, (16, 32))
    made["fused block, 256 channels"] = functools.partial(fused_block, device, dtype, 256, (16, 32), (1, 4))
    made["fused block, 32 channels, 4x4"] = functools.partial(fused_block, device, dtype, 32, (64, 128), (4, 4))
    made["initial estimate, 32 columns"] = functools.partial(estimate, device, dtype, (16, 32))
    made |= {f"convex upsampling x{f}": functools.partial(upsampling, device, dtype, f, (64, 128)) for f in (2, 4)}
    made["occlusion and confidence"] = functools.partial(agreement, device)
    made["confidence head"] = functools.partial(confidence_head, device, dtype, (128, 256))
    made["renderer: rays"] = functools.partial(renderer_rays, device)
    made["renderer: colours"] = functools.partial(renderer_colours, device)
    made["rt lean, 1024x512"] = functools.partial(network, device, "eager", (512, 1024))
    made["rt fused, 1024x512"] = functools.partial(network, device, "fused", (512, 1024))
    return made


def compare(kernel: Function, plain: Function, inputs: Sequence[Tensor], gradients: bool = False) -> Parity:
    """The worst of all outputs, and of the inputs' gradients where there are any."""
    exact = _results(plain, [value.double() for value in inputs], gradients)
    usual = _results(plain, inputs, gradients)
    found = _results(kernel, inputs, gradients)
    worst = Parity(0.0, torch.inf)
    for e, u, f in zip(exact, usual, found):
        scale = max(1.0, e.abs().max().item())
        error = (f.double() - e).abs().max().item() / scale
        allowed = _TIMES * (u.double() - e).abs().max().item() / scale + 4 * torch.finfo(f.dtype).eps
        if not error / allowed <= worst.error / worst.allowed or worst.allowed == torch.inf:
            worst = Parity(error, allowed)
    return worst


def _results(function: Function, inputs: Sequence[Tensor], gradients: bool) -> list[Tensor]:
    leaves = [value.detach().clone().requires_grad_(gradients) for value in inputs]
    with torch.set_grad_enabled(gradients):
        outputs = function(*leaves)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if not gradients:
            return list(outputs)
        generator = torch.Generator().manual_seed(1)
        pulls = [torch.randn(output.shape, generator=generator).to(output) for output in outputs]
        return [*(o.detach() for o in outputs), *torch.autograd.grad(outputs, leaves, pulls)]


def _random(device: torch.device, *shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(device)


def convolution(
    device: torch.device, dtype: torch.dtype, channels: int, gated: bool, size: tuple[int, int] = (19, 37)
) -> Parity:
    """A depthwise convolution or the middle of a ConvGLU, forward and backward."""
    from matchattention.ops.depthwise import convglu_mix, convglu_mix_plain, depthwise3x3, depthwise3x3_plain

    inputs = (
        _random(device, 2, *size, 2 * channels if gated else channels).to(dtype),
        _random(device, channels, 1, 3, 3, seed=1),
        _random(device, channels, seed=2),
    )
    kernel, plain = (convglu_mix, convglu_mix_plain) if gated else (depthwise3x3, depthwise3x3_plain)
    return compare(kernel, plain, inputs, gradients=True)


def norm(device: torch.device, dtype: torch.dtype, width: int) -> Parity:
    from matchattention.runtime.kernels.norm import layer_norm

    tokens = (_random(device, 2, 33, 70, width, scale=3.0) + 1).to(dtype)
    weight = (_random(device, width, seed=1, scale=0.1) + 1).to(dtype)
    return compare(
        lambda t, w: layer_norm(t, w, 1e-5), lambda t, w: F.layer_norm(t, (width,), w, None, 1e-5), (tokens, weight)
    )


def stem_norm(device: torch.device, dtype: torch.dtype, width: int) -> Parity:
    from matchattention.layers.tokens import instance_norm
    from matchattention.runtime.kernels.stem import instance_norm_gelu

    tokens = (_random(device, 2, 128, 256, width, scale=3.0) + 5).to(dtype)
    return compare(instance_norm_gelu, lambda t: F.gelu(instance_norm(t)), (tokens,))


def _block(channels: int, window: tuple[int, int]) -> Any:
    from matchattention.layers.block import BlockConfig, MATBlock

    torch.manual_seed(0)
    config = BlockConfig(channels, 4, 4, window, "l1", "match", True, True, False, window[0] > 1, 0)
    block = MATBlock(config).eval().requires_grad_(False)
    for attention in (block.first, block.cross):
        attention.out.weight[channels:] += 0.02 * torch.randn_like(attention.out.weight[channels:])
    return block


def _block_inputs(device: torch.device, dtype: torch.dtype, channels: int, size: tuple[int, int]) -> list[Tensor]:
    """Features, cross and self positions whose windows stay off the points where attention jumps."""
    cross, own = _random(device, 2, *size, 2, seed=1), _random(device, 2, *size, 4, 2, seed=2)
    quarters = [position.mul(2).round().add(0.25) for position in (cross, own)]
    return [_random(device, 2, *size, channels).to(dtype), *quarters]


def _plain_block(block: Any, device: torch.device) -> Function:
    """The block in the number format of the features that it gets; positions are fp32, or fp64 where those are."""

    def run(features: Tensor, cross: Tensor, own: Tensor) -> tuple[Tensor, ...]:
        made = copy.deepcopy(block).to(device, features.dtype)
        made.beta.data = made.beta.data.to(cross.dtype)
        for attention in (made.first, made.cross):
            attention.attention.backend = "reference"
        with plain_operations():
            refined = made(features, cross, own)
        return refined.features, refined.after_cross

    return run


def lean_block(device: torch.device, dtype: torch.dtype, channels: int, size: tuple[int, int]) -> Parity:
    from matchattention.runtime.lean.blocks import LeanBlock
    from matchattention.runtime.prepared import replace_layers

    block = _block(channels, (4, 4))

    def run(features: Tensor, cross: Tensor, own: Tensor) -> tuple[Tensor, ...]:
        made = copy.deepcopy(block).to(device, features.dtype)
        made.beta.data = made.beta.data.float()
        replace_layers(made)
        refined = LeanBlock(made).run(features, cross, own)
        return refined.features, refined.after_cross

    return compare(run, _plain_block(block, device), _block_inputs(device, dtype, channels, size))


def fused_block(
    device: torch.device, dtype: torch.dtype, channels: int, size: tuple[int, int], window: tuple[int, int]
) -> Parity:
    from matchattention.runtime.fused.blocks import FusedStage, pack_position

    block = _block(channels, window)
    stage = FusedStage([block], dtype).to(device)

    def run(features: Tensor, cross: Tensor, own: Tensor) -> tuple[Tensor, ...]:
        found, position = stage(features, pack_position(cross, own))
        return found, position[..., :2]

    return compare(run, _plain_block(block, device), _block_inputs(device, dtype, channels, size))


def estimate(device: torch.device, dtype: torch.dtype, size: tuple[int, int]) -> Parity:
    """Positions of a matching that is sharp: of a vague one rounding decides."""
    from matchattention.layers.initial import TransportEstimate
    from matchattention.runtime.fused.network import FusedStereoEstimate

    torch.manual_seed(0)
    plain = TransportEstimate(64, 4, 4, stereo=True, layers=0, iterations=8).to(device).requires_grad_(False)
    kernel = FusedStereoEstimate(plain, 4, dtype).to(device)
    view = _random(device, 1, *size, 64, scale=8.0)
    tokens = torch.cat((view, view.roll(-3, 2))).to(dtype)

    def run(tokens: Tensor) -> Tensor:
        with plain_operations():
            return copy.deepcopy(plain).to(tokens.dtype)(tokens).position

    return compare(lambda t: kernel(t)[..., :2], run, (tokens,))


def upsampling(device: torch.device, dtype: torch.dtype, factor: int, size: tuple[int, int]) -> Parity:
    from matchattention.layers.upsampling import ConvexUpsampling
    from matchattention.runtime.packing import PackedConvex

    torch.manual_seed(0)
    plain = ConvexUpsampling(32, 64, factor).to(device).requires_grad_(False)
    kernel = PackedConvex(plain, 1, dtype).to(device)

    def run(features: Tensor, position: Tensor) -> Tensor:
        (field,) = copy.deepcopy(plain).to(features.dtype)(features, position)
        return field

    inputs = _random(device, 2, *size, 32).to(dtype), _random(device, 2, *size, 2, seed=1, scale=8.0)
    return compare(lambda f, p: kernel(f, p.contiguous(), packed=False), run, inputs)


def agreement(device: torch.device) -> Parity:
    """Confidence alone: occlusion is a threshold, on either side of which a rounding may fall."""
    from matchattention.inference.consistency import OCCLUSION_SLOPE, OCCLUSION_THRESHOLD, SCALE, judge
    from matchattention.runtime.kernels import agreement as kernel

    def plain(first: Tensor, second: Tensor) -> Tensor:
        return judge(first.cpu(), second.cpu())[1].to(device)

    def run(first: Tensor, second: Tensor) -> Tensor:
        return kernel.agreement(first, second, OCCLUSION_THRESHOLD, OCCLUSION_SLOPE, SCALE)[1]

    smooth = _random(device, 1, 512, 1024, 2, scale=0.3)
    return compare(run, plain, (smooth - 9.25, 9.25 - smooth))


def confidence_head(device: torch.device, dtype: torch.dtype, size: tuple[int, int]) -> Parity:
    """The probability of being within a pixel, of tokens at 1/4; its convolutions are in the number format."""
    from matchattention.layers.confidence_head import ONE_SIGMA, SCALE, ConfidenceHead, Evidence
    from matchattention.runtime.fused.confidence import FusedHead

    torch.manual_seed(0)
    head = ConfidenceHead(32).requires_grad_(False).to(device)
    head.decide.weight *= 10  # a new one says nearly the same of every pixel
    fused = FusedHead(head, dtype)

    def plain(*seen: Tensor) -> Tensor:
        exact = seen[0].dtype == torch.float64
        with torch.autocast(device.type, dtype, enabled=not exact):
            return copy.deepcopy(head).to(seen[0].dtype)(Evidence(*seen)).within(1.0)

    def run(*seen: Tensor) -> Tensor:
        return fused(Evidence(*seen), 1.0, ONE_SIGMA)[0]

    positions = _random(device, 1, *size, 2, seed=1), _random(device, 1, *size, 2, seed=2)
    pixels = [SCALE * side for side in size]
    field = _random(device, 1, *pixels, 2, seed=3, scale=6)
    agreement = _random(device, 1, *pixels, seed=4).sigmoid()
    return compare(run, plain, (_random(device, 1, *size, 32), *positions, field, agreement))


@functools.lru_cache(maxsize=1)
def _rendered(device: torch.device) -> tuple[Parity, Parity]:
    """The same tables through both backends: rays that hit another thing, and colours that differ."""
    from dataclasses import replace

    from matchattention.synth.photos import photo_bank
    from matchattention.synth.rays import cast_torch, cast_triton, shade_torch, shade_triton
    from matchattention.synth.rays.tables import photo_pyramid
    from matchattention.synth.stream import render as rendering
    from matchattention.synth.world.config import PRESETS
    from matchattention.synth.world.scene import convert, draw_scenes

    config = replace(PRESETS["mixed"], layouts={"room": 1.0, "tabletop": 1.0, "street": 1.0, "forest": 1.0})
    size = (48, 80)
    photos = photo_pyramid(photo_bank.load(device=device), device)
    scene = convert(draw_scenes(config, 5, range(4), size, photos.amount), lambda tensor: tensor.to(device))
    views = rendering.two_views(scene, rendering.choose_baseline(scene, config, size))
    here = rendering.prepare(scene, views, config, photos)
    host = rendering.Prepared(*(convert(part, torch.Tensor.cpu) for part in here))
    offsets = rendering.sample_offsets(config.samples, device)
    depth, hit = cast_triton.cast(here.tables, here.cameras, size, offsets)
    _, twin_hit = cast_torch.cast(host.tables, host.cameras, size, offsets.cpu())
    image = shade_triton.shade(here.shading, here.tables, here.cameras, offsets, depth, hit)
    twin = shade_torch.shade(host.shading, host.tables, host.cameras, offsets.cpu(), depth.cpu(), hit.cpu())
    difference = ((image.cpu() - twin).abs() / (0.01 + twin.abs())).flatten().sort().values
    return (
        Parity((hit.cpu() != twin_hit).float().mean().item(), 2e-3),
        Parity(difference[int(0.999 * (len(difference) - 1))].item(), 0.02),
    )


def renderer_rays(device: torch.device) -> Parity:
    """Share of rays that hit another thing: those along an edge."""
    return _rendered(device)[0]


def renderer_colours(device: torch.device) -> Parity:
    """Relative difference of colours that one in a thousand exceeds."""
    return _rendered(device)[1]


def network(device: torch.device, mode: Any, shape: tuple[int, int], model: MatchNetwork | None = None) -> Parity:
    """RT's kernels on a pair that matches, fp16 against fp32; mean px, beside plain PyTorch in fp16.

    The mean hangs on few tokens: where a cross position passes an integer, the attention weights move on by one key,
    and as features they jump. Rounding decides which side such a token falls on, in either of the two. With random
    weights it would decide everything: matchings are nearly uniform then, and uniform is the estimate's threshold.
    """
    from matchattention.runtime.runtime import Runtime

    model = model or load_or_create("rt")[0]
    left, right, _ = image_pair(*shape, device)
    found = Runtime(model, device, "fp16", mode)(left, right).clone()
    fields = []
    with plain_operations():
        for precision in ("fp32", "fp16"):
            match = Runtime(model, device, precision, "eager")
            match.network.use_backend("reference")
            fields.append(match(left, right).clone())
    exact, rounded = fields
    errors = [(field - exact)[..., 0].abs().mean().item() for field in (found, rounded)]
    return Parity(errors[0], _TIMES * errors[1] + NETWORK_FLOOR)
