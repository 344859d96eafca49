"""What each row costs: parameters, arithmetic, time and memory of one pair."""

from __future__ import annotations

from typing import Any

import torch

from matchattention.ablation.rows import Row, Say
from matchattention.bench.network import time_mode
from matchattention.models.config import NetworkConfig
from matchattention.models.flops import count_flops
from matchattention.models.registry import create_model

SIZE = (512, 1024)  # the paper's tables 5 and 7


def cost_of(
    row: Row,
    base: NetworkConfig,
    device: torch.device,
    size: tuple[int, int] = SIZE,
    seconds: float = 0.5,
    say: Say = print,
) -> dict[str, Any]:
    """Parameters, FLOPs of both views, and time and peak memory of a pair with random weights.

    On a GPU a pass is fp16 and one CUDA graph of plain kernels for every row alike: the fused network exists for
    some of them only and is timed by `matchattention bench`. On a CPU it is eager fp32.
    """
    config = row.network_config(base)
    torch.manual_seed(0)
    model = create_model(config).eval()
    on_gpu = device.type == "cuda"
    precision, mode = ("fp16", "eager-graph") if on_gpu else ("fp32", "eager")
    say(f"{row.name}:")
    timing = time_mode(model, size, device, precision, mode, seconds, say)  # type: ignore[arg-type]
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "flops": count_flops(config, *size),
        "size": list(size),
        "precision": precision,
        "mode": mode,
        "timing": timing,
    }
