"""Where a network runs and in which number format."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from matchattention.errors import InputError

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def choose_device(name: str | torch.device) -> torch.device:
    """ "auto" is the GPU where there is one, else the CPU; anything else is what PyTorch calls it."""
    if str(name) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"There is no device '{name}': use auto, cpu, cuda or cuda:0.") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"Device '{name}' is not here: no CUDA GPU that this PyTorch can use; try --device cpu.")
    if device.type == "cuda" and device.index is not None and device.index >= torch.cuda.device_count():
        raise InputError(f"Device '{name}' is not here: this machine has {torch.cuda.device_count()} GPU(s).")
    return device


def on(device: torch.device) -> AbstractContextManager[object]:
    """While it lasts, this GPU is the current one: kernels are launched and graphs captured there, and nowhere else."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """ "auto" is fp16 on a GPU (0.02 px from fp32 on average, positions stay fp32) and fp32 on a CPU.

    On a CPU with bf16 arithmetic (AVX-512, one core) RT in bf16 took 0.79 of the CPU time, but was 0.13 px from fp32 on
    average; with products alone in bf16 0.90 and 0.08 px. Neither is worth more than 0.05 px, the most "auto" may lose.
    """
    if name == "auto":
        return torch.float16 if device.type == "cuda" else torch.float32
    if name not in PRECISIONS:
        raise InputError(f"There is no precision '{name}': use auto, {', '.join(PRECISIONS)}.")
    if device.type == "cpu" and name == "fp16":
        raise InputError("A CPU has no fast fp16: use --precision fp32 or bf16 there.")
    return PRECISIONS[name]
