"""Weights spread over processes (FSDP2): each holds a part of every tensor, its gradient, moments and average.

For networks whose 20 bytes a parameter do not fit one GPU beside the activations. The optimizer sees its process's
parts as plain tensors; only saving and loading see whole ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.training.compilation import repeated_blocks
from matchattention.training.distributed import Replicas


def shard(model: nn.Module, replicas: Replicas) -> None:
    """Spread a network's parameters over all processes, block by block, in place.

    A block's weights are gathered when it is about to run, and its gradients are averaged and scattered when it has run
    backwards.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if replicas.count < 2:
        raise InputError("--shard spreads weights over several processes: start them with torchrun, or leave it out")
    mesh = init_device_mesh(next(model.parameters()).device.type, (replicas.count,))
    single = {parameter for parameter in model.parameters() if parameter.dim() == 0}  # nothing there to spread
    for block in repeated_blocks(model):
        fully_shard(block, mesh=mesh, ignored_params=single)
    fully_shard(model, mesh=mesh, ignored_params=single)


def is_sharded(tensor: Tensor) -> bool:
    """Whether a tensor is spread over processes."""
    return hasattr(tensor, "full_tensor")


def own_part(parameter: nn.Parameter) -> nn.Parameter:
    """The memory of this process's part as a plain parameter; an unsharded parameter itself."""
    return nn.Parameter(parameter.to_local().detach()) if is_sharded(parameter) else parameter  # type: ignore[attr-defined]


def whole(part: Tensor, like: Any) -> Tensor:
    """The whole tensor whose part this is, spread as ``like`` is; every process must ask at the same time."""
    if not is_sharded(like) or part.dim() == 0:
        return part.detach()
    if is_sharded(part):
        return part.detach().full_tensor()  # type: ignore[attr-defined]
    from torch.distributed.tensor import DTensor

    spread = DTensor.from_local(
        part.detach(), like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return spread.full_tensor()


@torch.no_grad()
def assign(target: Tensor, value: Tensor, like: Any) -> None:
    """Copy a whole tensor into ``target``, which may be this process's part of one that is spread as ``like`` is."""
    if is_sharded(like) and target.dim():
        from torch.distributed.tensor import distribute_tensor

        value = value.to(like.device, like.dtype)
        value = distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
        value = value if is_sharded(target) else value.to_local()  # type: ignore[attr-defined]
    target.copy_(value)
