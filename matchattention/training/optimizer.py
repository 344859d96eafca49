"""One update of the weights: gradient norm, clipping, AdamW or Muon, running average, all on the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from matchattention.errors import InputError
from matchattention.training.muon import Muon, is_matrix
from matchattention.training.sharding import is_sharded, own_part


@dataclass(frozen=True)
class OptimizerConfig:
    """How weights follow gradients, and their average.

    Attributes:
        kind: "adamw", or "muon": orthogonalised momentum for matrices and AdamW for the rest.
        weight_decay: Applied to weights with two or more dimensions only; norms, biases and residual
            scales have none.
        betas: AdamW's.
        momentum: Muon's.
        clip: Largest gradient norm; longer gradients are scaled down to it.
        average_decay: Decay of the exponential average (EMA) of the weights, reached gradually; its horizon is
            1 / (1 - decay) steps.
    """

    kind: Literal["adamw", "muon"] = "adamw"
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.99)
    momentum: float = 0.95
    clip: float = 1.0
    average_decay: float = 0.999

    def __post_init__(self) -> None:
        if self.kind not in ("adamw", "muon"):
            raise InputError(f"Unknown optimizer '{self.kind}': choose adamw or muon")
        if not 0 <= self.average_decay < 1:
            raise InputError(f"The decay of the weights' average must lie in [0, 1), not {self.average_decay:g}")


class Updater:
    """Owns the optimizer and the exponential average of a model's weights.

    Learning rate, averaging weight and statistics are device tensors, so that `update` can be captured in
    a CUDA graph and replayed with other values.

    Of a sharded network it updates this process's part; a plain one has one part, the whole.

    Attributes:
        originals: The network's parameters, in the order of ``names``.
        parameters: This process's part of each.
        average: fp32 average of every part.
        statistics: (4,) since the last `read_statistics`: sum of gradient norms, largest norm, steps
            skipped because a gradient was not finite, steps.
    """

    def __init__(self, model: nn.Module, config: OptimizerConfig) -> None:
        self.config = config
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self.names = [name for name, _ in named]
        self.originals = [p for _, p in named]
        self.sharded = any(is_sharded(p) for p in self.originals)
        self.replicated = [p for p in self.originals if not is_sharded(p)]
        if self.sharded and config.kind == "muon":
            raise InputError("--shard needs --optimizer adamw: Muon's step takes whole matrices, which no process has")
        self.parameters = [own_part(p) for p in self.originals]
        device = self.parameters[0].device
        self.rate = torch.zeros((), device=device)
        self._average_weight = torch.ones((), device=device)
        self.statistics = torch.zeros(4, device=device)
        on_gpu = device.type == "cuda"
        matrices = [p for p in self.parameters if config.kind == "muon" and is_matrix(p)]
        self.muon = Muon(matrices, config.momentum, config.weight_decay) if matrices else None
        chosen = {id(p) for p in matrices}
        self._rest = [p for p in self.parameters if id(p) not in chosen]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in self._rest if p.dim() >= 2], "weight_decay": config.weight_decay},
                {"params": [p for p in self._rest if p.dim() < 2], "weight_decay": 0.0},
            ],
            lr=self.rate,
            betas=config.betas,
            fused=True,
            capturable=on_gpu,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate  # one tensor for all, also where the optimizer copies its defaults
        self.average = [p.detach().clone() for p in self.parameters]
        self._fill_state()

    def _fill_state(self) -> None:
        """Give every parameter its moments now: made lazily, they would be captured as zeros for ever."""
        for parameter in self._rest:
            self.optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """What the optimizer remembers of each parameter, by name: live tensors to save or to fill."""
        names = {id(p): name for name, p in zip(self.names, self.parameters)}
        found = {names[id(p)]: dict(self.optimizer.state[p]) for p in self._rest}
        for parameter, momentum in self.muon.momenta() if self.muon is not None else ():
            found[names[id(parameter)]] = {"momentum": momentum}
        return found

    def set_rates(self, learning_rate: float, step: int) -> None:
        """Values of the next update; ``step`` counts the updates the average has seen."""
        decay = min(self.config.average_decay, (1 + step) / (10 + step))
        self.rate.fill_(learning_rate)
        self._average_weight.fill_(1 - decay)

    @torch.no_grad()
    def update(self) -> None:
        """Clip, step, average. A gradient that is not finite leaves the weights and moments as they are."""
        if self.sharded:
            for part, original in zip(self.parameters, self.originals):
                if part is not original:
                    part.grad = None if original.grad is None else original.grad.to_local()  # type: ignore[attr-defined]
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        norms = torch.stack(torch._foreach_norm(gradients))
        norm = self._norm_of_all_parts(norms) if self.sharded else torch.linalg.vector_norm(norms)
        finite = torch.isfinite(norm)
        # The fused kernel divides by `grad_scale` and does nothing where `found_inf`: clipping and
        # skipping cost no pass over the gradients and no synchronisation.
        optimizer: torch.optim.Optimizer = self.optimizer
        divisor = (norm / self.config.clip).clamp(min=1.0).nan_to_num(1.0, 1.0)
        optimizer.grad_scale = divisor  # type: ignore[attr-defined]
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
        if self.muon is not None:
            self.muon.step(self.rate, divisor, finite)
        weights: list[Tensor] = [p.detach() for p in self.parameters]
        difference = list(torch._foreach_sub(weights, self.average))  # type: ignore[arg-type]
        torch._foreach_mul_(difference, self._average_weight)
        torch._foreach_add_(self.average, difference)
        known = norm.nan_to_num(0.0, 0.0)
        ones = torch.ones_like(norm)
        self.statistics[:1].add_(known)
        self.statistics[1:2].copy_(torch.maximum(self.statistics[1], known))
        self.statistics[2:].add_(torch.stack(((~finite).float(), ones)))

    def _norm_of_all_parts(self, norms: Tensor) -> Tensor:
        """The whole gradient's norm from those of this process's parts; what every process holds counts once."""
        spread = torch.tensor([is_sharded(p) for p in self.originals], device=norms.device)
        squares = (norms.square() * spread).sum()
        torch.distributed.all_reduce(squares)
        return (squares + (norms.square() * ~spread).sum()).sqrt()

    def clear_gradients(self) -> None:
        """Forget every gradient."""
        for parameter in (*self.parameters, *self.originals):
            parameter.grad = None

    @torch.no_grad()
    def rehearse(self) -> None:
        """Run `update` once without changing anything, to warm up its kernels before a capture."""
        weight, kept = self._average_weight.clone(), self.statistics.clone()
        for parameter in self.parameters:
            parameter.grad = torch.full_like(parameter, float("nan"))
        self._average_weight.zero_()
        self.update()
        self._average_weight.copy_(weight)
        self.statistics.copy_(kept)
        for parameter in self.parameters:
            parameter.grad = None

    def read_statistics(self) -> dict[str, float]:
        """Mean and largest gradient norm and skipped steps since the last call; waits for the device."""
        total, largest, skipped, steps = self.statistics.tolist()
        self.statistics.zero_()
        return {"gradient": total / max(steps - skipped, 1), "gradient_max": largest, "skipped": skipped}

    def averaged(self) -> dict[str, Tensor]:
        """The averaged weights by parameter name (the live tensors, of this process's part)."""
        return dict(zip(self.names, self.average))
