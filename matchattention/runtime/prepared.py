"""A network made ready to run and no longer to train: number format, memory layout, faster forms of its layers."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from matchattention.layers.tokens import LayerNorm, Projection
from matchattention.models.network import MatchNetwork
from matchattention.ops import kernels


class InDtype(nn.Module):
    """A module that takes its input in another number format."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        self.dtype = dtype

    def forward(self, tensor: Tensor) -> Tensor | list[Tensor]:
        return self.module(tensor.to(self.dtype))


class PaddedProjection(nn.Module):
    """A `Projection` whose matrix has been padded to multiples of eight once, instead of at every call."""

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.out_features = projection.out_features
        more_in, more_out = -projection.in_features % 8, -projection.out_features % 8
        self.weight = nn.Parameter(F.pad(projection.weight.detach(), (0, more_in, 0, more_out)), False)
        bias = projection.bias
        self.bias = None if bias is None else nn.Parameter(F.pad(bias.detach(), (0, more_out)), False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.padded(tokens)[..., : self.out_features]

    def padded(self, tokens: Tensor) -> Tensor:
        """All columns, those of the padding too; of tokens that may be padded already."""
        more = self.weight.shape[1] - tokens.shape[-1]
        return F.linear(F.pad(tokens, (0, more)) if more else tokens, self.weight, self.bias)


class KernelNorm(LayerNorm):
    """A `LayerNorm` of half-precision rows in one kernel; PyTorch needs three, and is slow for odd widths."""

    def forward(self, tokens: Tensor) -> Tensor:
        plain = tokens.dtype == torch.float32 or not kernels.has_kernel(tokens)
        if plain or torch.compiler.is_compiling():
            return super().forward(tokens)
        from matchattention.runtime.kernels.norm import layer_norm

        return layer_norm(tokens, self.weight, self.eps)


def prepare(model: MatchNetwork, device: torch.device, dtype: torch.dtype) -> MatchNetwork:
    """A copy of `model` for inference alone.

    Weights are stored in `dtype`. The scales between features and positions stay fp32, as the positions do.
    Convolutions are channels-last; depthwise ones have their channels innermost, which the kernel reads widest.
    """
    network = copy.deepcopy(model).eval().requires_grad_(False).to(device)
    precise = {
        name: value.clone() for name, value in network.state_dict().items() if name.endswith((".beta", "bin_score"))
    }
    network = network.to(dtype)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = _channels_inner(module.weight) if module.groups > 1 else _channels_last(module.weight)
    for name, value in precise.items():
        network.get_parameter(name).data = value
    if device.type == "cuda":
        replace_layers(network)
        if dtype != torch.float32 and kernels.TRITON_IS_INSTALLED:
            from matchattention.runtime.lean.network import make_lean

            make_lean(network)
    elif device.type == "cpu":
        from matchattention.runtime.cpu.freed_memory import keep_freed_memory
        from matchattention.runtime.cpu.products import oneDNN_is_here

        keep_freed_memory()
        if dtype == torch.float32 and oneDNN_is_here():
            from matchattention.runtime.cpu.network import replace_for_cpu

            replace_for_cpu(network)
    network.encoder = InDtype(network.encoder, dtype)  # type: ignore[assignment]
    return network


def _channels_last(weight: Tensor) -> Tensor:
    return weight.data.to(memory_format=torch.channels_last)


def _channels_inner(weight: Tensor) -> Tensor:
    """(C, 1, 3, 3) with the strides of (1, 3, 3, C)."""
    return weight.data.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)


def replace_layers(module: nn.Module) -> None:
    """Projections that are padded once and norms in one kernel, in place."""
    for name, child in module.named_children():
        if isinstance(child, Projection):
            setattr(module, name, PaddedProjection(child))
        elif isinstance(child, LayerNorm):
            norm = KernelNorm(child.weight.shape[0], child.eps)
            norm.weight = child.weight
            setattr(module, name, norm)
        else:
            replace_layers(child)
