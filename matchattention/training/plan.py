"""What a training will take, before it is started: memory and arithmetic counted without doing any."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS
from matchattention.training.compilation import repeated_blocks
from matchattention.training.log import duration
from matchattention.training.recipe import Preset

# Bytes a parameter: weight, gradient and average in fp32, and AdamW's two moments; Muon's momentum and a copy of the
# gradient are as many.
STATE_BYTES = 20
# Forward and backward of RT, compiled and captured, on an H200: 504 pairs/s of 320x640 (docs/training-log.md) times
# 3 x 24.07 GFLOP. Larger networks use a GPU better.
H200_TFLOPS = 36.4
# Raw bytes of a pair as it travels from a disk or a network: two images, two fields, masks; PNG about halves it.
BYTES_A_PIXEL = 2 * 3 + 2 * 4 + 2


@dataclass(frozen=True)
class Footprint:
    """What one pair takes, and the network itself.

    Attributes:
        parameters: Of the network.
        activations: Bytes kept for the way back, a pair.
        inputs: The same when blocks keep their inputs only, a pair.
        largest_block: Bytes that the largest block needs while it runs again, a pair.
        flops: Of a forward pass, a pair.
    """

    parameters: int
    activations: int
    inputs: int
    largest_block: int
    flops: int

    def memory(self, pairs: int, recompute: bool = False, shards: int = 1) -> int:
        """Bytes on one GPU with so many pairs at once."""
        kept = self.inputs + self.largest_block if recompute else self.activations
        return self.parameters * STATE_BYTES // shards + pairs * kept

    def step_flops(self, pairs: int, recompute: bool = False) -> int:
        """Of a step: backwards takes twice what forwards takes."""
        return pairs * self.flops * (4 if recompute else 3)


def footprint(config: NetworkConfig, height: int, width: int, mixed_precision: bool = True) -> Footprint:
    """Count a network's memory and arithmetic for one pair of a crop, as our GPU kernels keep them."""
    kept: dict[int, Tensor] = {}  # by storage; holding the tensors keeps the numbers from being used again
    blocks: dict[int, int] = {}
    inputs: dict[int, Tensor] = {}

    def bytes_of(tensors: dict[int, Tensor]) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors.values())

    def remember(tensor: Tensor) -> Tensor:
        kept[id(tensor.untyped_storage())] = tensor
        return tensor

    with FakeTensorMode():
        network = MatchNetwork(config).train().use_backend("opaque")
        own = {id(parameter.untyped_storage()) for parameter in network.parameters()}
        for block in repeated_blocks(network):

            def before(module: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
                inputs.update({id(value.untyped_storage()): value for value in given})
                blocks[id(module)] = -bytes_of(kept)

            def after(module: torch.nn.Module, given: tuple[Tensor, ...], result: object) -> None:
                blocks[id(module)] += bytes_of(kept)

            block.register_forward_pre_hook(before)
            block.register_forward_hook(after)
        image = torch.empty(1, 3, height, width)
        with (
            torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor),
            torch.autocast("cpu", torch.bfloat16, enabled=mixed_precision, cache_enabled=False),
            FlopCounterMode(display=False) as counter,
        ):
            network(image, image)
        for storage in own:
            kept.pop(storage, None)
        return Footprint(
            sum(parameter.numel() for parameter in network.parameters()),
            bytes_of(kept),
            bytes_of(inputs),
            max(blocks.values()),
            counter.get_total_flops(),
        )


def plan(preset: Preset, processes: int = 1, tflops: float = H200_TFLOPS, shard: bool = False) -> str:
    """A preset's plan in words: what is trained on what, memory and time of each stage.

    Args:
        preset: The training.
        processes: GPUs it is meant for.
        tflops: Arithmetic a GPU really does a second, 1e12.
        shard: Whether weights are spread over the processes.
    """
    config = NETWORKS[preset.model].config if isinstance(preset.model, str) else preset.model
    name = preset.model if isinstance(preset.model, str) else "a network of its own"
    weights = sum(source.weight for source in preset.sources)
    lines = [f"{preset.summary}", f"network    {name}, {config.task}; start {preset.start or 'random weights'}"]
    for source in preset.sources:
        lines.append(f"source     {100 * source.weight / weights:5.1f} %  {source.kind} {source.preset}")
    average = preset.optimizer.average_decay
    lines.append(
        f"optimizer  {preset.optimizer.kind}, {preset.schedule.kind}, peak rate {preset.schedule.peak:g}, "
        f"EMA over {1 / (1 - average):.0f} steps, activations {'recomputed' if preset.recompute else 'kept'}"
    )
    shares = sum(stage.share for stage in preset.stages)
    total = 0.0
    for stage in preset.stages:
        found = footprint(config, stage.height, stage.width, preset.mixed_precision)
        if stage is preset.stages[0]:
            lines.insert(2, f"           {found.parameters / 1e6:.1f} M parameters")
        at_once, rest = divmod(stage.batch, processes * preset.accumulate)
        if rest or not at_once:
            raise InputError(
                f"A batch of {stage.batch} does not divide into {processes} processes x {preset.accumulate} "
                "micro-batches: choose --batch or --accumulate so that it does"
            )
        gib = found.memory(at_once, preset.recompute, processes if shard else 1) / 2**30
        seconds = found.step_flops(stage.batch, preset.recompute) / (tflops * 1e12 * processes)
        line = (
            f"stage      {stage.height}x{stage.width}, batch {stage.batch} = {processes} x {preset.accumulate} x "
            f"{at_once}: {gib:.1f} GiB a GPU, {stage.batch / seconds:.0f} pairs/s, "
            f"{stage.batch / seconds * stage.height * stage.width * BYTES_A_PIXEL / 1e6:.0f} MB/s of pairs"
        )
        if preset.steps is not None:
            steps = preset.steps * stage.share / shares
            total += steps * seconds
            line += f", {steps:.0f} steps in {duration(steps * seconds)}"
        lines.append(line)
    if preset.minutes is not None:
        lines.append(f"ends       after {preset.minutes:g} minutes, everything included")
    if preset.steps is not None:
        days = total / 86400
        lines.append(f"ends       after {preset.steps} steps: {days:.1f} days, {days * processes:.1f} GPU days")
    lines.append(
        f"counted for {tflops:g} TFLOP/s a GPU (--tflops); memory without the allocator's slack, a tenth or so"
    )
    return "\n".join(lines)
