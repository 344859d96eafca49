"""The network and the device a preset asks for."""

from __future__ import annotations

import torch

from matchattention.models import checkpoint
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import create_model
from matchattention.models.transfer import stereo_to_flow
from matchattention.runtime.precision import choose_device
from matchattention.training.distributed import Replicas
from matchattention.training.recipe import Preset


def use_fast_arithmetic() -> None:
    """TF32 where fp32 is asked for, and convolutions by whichever algorithm is fastest here: how trainings compute."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True


def training_device(name: str, replicas: Replicas) -> torch.device:
    """The device this process trains on; each process of a machine gets its own GPU."""
    device = choose_device(name)
    if device.type == "cuda":
        device = device if device.index is not None else choose_device(f"cuda:{replicas.local_rank}")
        torch.cuda.set_device(device)
        use_fast_arithmetic()
    return device


def build_model(preset: Preset, device: torch.device, weights: bool) -> tuple[MatchNetwork, NetworkConfig]:
    """The preset's network in training mode; with its starting weights where ``weights`` is set."""
    model = create_model(preset.model)
    if preset.start is not None and weights:
        start = checkpoint.load(preset.start)
        state = start.state_dict()
        if start.config.task == "stereo" and model.config.task == "flow":
            state = stereo_to_flow(state, start.config, model.config)
        checkpoint.load_weights(model, state, preset.start)
    return model.to(device).train(), model.config
