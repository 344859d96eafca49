"""Several processes, one training: the only place that knows about ranks and gradients between them.

Gradients are averaged in one call after the backward pass instead of through DistributedDataParallel's
hooks, because the captured backward pass runs no hooks. Every rank holds the same weights throughout.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from matchattention.training.lanes import Lane


@dataclass(frozen=True)
class Replicas:
    """This process's place among all processes of a training."""

    rank: int = 0
    count: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process logs, validates and saves."""
        return self.rank == 0

    def lane(self, parts: int) -> Lane:
        """This process's way through the requests of a training with ``parts`` micro-batches a step."""
        return Lane(self.rank, self.count, parts)

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the first one's values."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    @torch.no_grad()
    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every rank's gradients by their mean."""
        if self.count == 1:
            return
        gradients: list[Tensor] = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        flat.div_(self.count)
        parts = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [part.view_as(g) for part, g in zip(parts, gradients)])

    def agree(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The largest of each value over all ranks, so that all do the same at the same step."""
        if self.count == 1:
            return list(values)
        shared = torch.tensor(values, dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device)
        dist.all_reduce(shared, op=dist.ReduceOp.MAX)
        return shared.tolist()

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean of a tensor over all ranks."""
        if self.count == 1:
            return tensor
        shared = tensor.clone()
        dist.all_reduce(shared)
        return shared / self.count


def join() -> Replicas:
    """Join the processes torchrun started; alone when it started none."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return Replicas()
    if not dist.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        if restarted() and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # torchrun's store outlives its workers: under the same keys a new one may find a dead one's address.
            rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            server = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), count, is_master=False)
            store = dist.PrefixStore(f"restart-{os.environ['TORCHELASTIC_RESTART_COUNT']}", server)
            dist.init_process_group(backend, store=store, rank=rank, world_size=count)
        else:
            dist.init_process_group(backend)
    return Replicas(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", "0")))


def restarted() -> bool:
    """Whether torchrun restarted this process because one of its workers ended (``--max-restarts``)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def leave() -> None:
    """Leave the group of processes; harmless when there is none."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
