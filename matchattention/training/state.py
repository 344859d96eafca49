"""A training's whole state on disk, and the small version of it that can travel."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from matchattention.data.atomic import replacing
from matchattention.errors import InputError
from matchattention.training.optimizer import Updater
from matchattention.training.parts import join_parts, write_parts

STATE_FILE = "state.pt"
COMPACT_FILE = "state.safetensors"
_OCTAVES = 40.0  # second moments this far below a tensor's largest one act like it: the epsilon rules there


@dataclass
class Counters:
    """How far a training has come, over all its runs.

    Attributes:
        steps: Updates made.
        samples: Pairs drawn from the source by all processes.
        seconds: Time spent training.
        average_steps: Updates the weight average has seen since it last began.
        restarted_at: Step at which the optimizer's moments were last empty.
        silenced: Samples whose ground truth or images were unusable.
        skipped: Updates left out because a gradient was not finite.
    """

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    average_steps: int = 0
    restarted_at: int = 0
    silenced: int = 0
    skipped: int = 0


def save_state(path: Path, model: nn.Module, updater: Updater, counters: Counters, recipe: dict[str, Any]) -> None:
    """Write everything that an exact continuation needs, whole or not at all."""
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    content = {
        "counters": asdict(counters),
        "recipe": json.dumps(recipe),
        "model": model.state_dict(),
        "average": updater.averaged(),
        "moments": updater.moments(),
        "random": random,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        torch.save(content, temporary)


@torch.no_grad()
def load_state(path: Path, model: nn.Module, updater: Updater) -> Counters:
    """Continue where `save_state` stopped; tensors are copied in place, so captured graphs stay valid."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    _check_names(path, model, content["model"])
    _copy_weights(model, content["model"])
    for name, average in updater.averaged().items():
        average.copy_(content["average"][name])
    counters = Counters(**content["counters"])
    for name, moments in updater.moments().items():
        kept = content["moments"][name]
        if moments.keys() != kept.keys():  # another optimizer from here on: its moments begin empty
            counters.restarted_at = counters.steps
            continue
        for key, moment in moments.items():
            moment.copy_(kept[key])
    torch.set_rng_state(content["random"]["cpu"])
    if torch.cuda.is_available() and "cuda" in content["random"]:
        torch.cuda.set_rng_state(content["random"]["cuda"])
    return counters


def quantise_squares(values: Tensor) -> tuple[Tensor, Tensor]:
    """Positive values on a logarithmic grid of 255 steps: uint8 codes and the largest exponent.

    The grid spans 40 octaves, so a value is off by at most 5.6 %, its square root by 2.8 %.
    """
    largest = values.amax().log2().clamp(min=-120.0).float()
    octaves = (values.float().log2() - largest).clamp(min=-_OCTAVES)  # log2(0) = -inf becomes the smallest
    return (255 + octaves * (255 / _OCTAVES)).round().to(torch.uint8), largest


def restore_squares(codes: Tensor, largest: Tensor) -> Tensor:
    """Back from `quantise_squares`; the smallest code stands for zero."""
    values = torch.exp2(largest + (codes.float() - 255) * (_OCTAVES / 255))
    return torch.where(codes > 0, values, torch.zeros((), device=values.device))


def export_compact(folder: Path, model: nn.Module, updater: Updater, counters: Counters, part_bytes: int) -> list[Path]:
    """Write a state small enough to travel, in parts: fp16 weights and 8-bit second moments.

    The first moments and the weight average are left out: they forget within tens and thousands of steps.
    """
    tensors = {f"weight.{name}": value.detach().cpu().half().contiguous() for name, value in model.state_dict().items()}
    for name, moments in updater.moments().items():
        if "exp_avg_sq" in moments:
            codes, largest = quantise_squares(moments["exp_avg_sq"].detach().cpu())
            tensors[f"square.{name}"] = codes.contiguous()
            tensors[f"largest.{name}"] = largest
    data = save_tensors(tensors, {"counters": json.dumps(asdict(counters))})
    return write_parts(data, folder / COMPACT_FILE, part_bytes)


@torch.no_grad()
def load_compact(folder: Path, model: nn.Module, updater: Updater) -> Counters | None:
    """Continue from `export_compact`'s parts in ``folder``; None when there are none."""
    data = join_parts(folder / COMPACT_FILE)
    if data is None:
        return None
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    counters = Counters(**json.loads(header["__metadata__"]["counters"]))
    tensors = load_tensors(data)
    weights = {name.removeprefix("weight."): v for name, v in tensors.items() if name.startswith("weight.")}
    _check_names(folder, model, weights)
    _copy_weights(model, weights)
    updater.restart_average()
    for name, moments in updater.moments().items():
        if "exp_avg_sq" not in moments:
            counters.restarted_at = counters.steps  # momentum does not travel
        elif f"square.{name}" in tensors:
            moments["exp_avg_sq"].copy_(restore_squares(tensors[f"square.{name}"], tensors[f"largest.{name}"]))
            moments["step"].fill_(counters.steps)
        else:
            counters.restarted_at = counters.steps
    counters.average_steps = 0
    return counters


def resume(path: Path, model: nn.Module, updater: Updater) -> Counters:
    """Continue from a run's folder or an export's, whichever ``path`` is.

    Raises:
        InputError: There is no state, or it belongs to another network.
    """
    if (path / STATE_FILE).is_file():
        return load_state(path / STATE_FILE, model, updater)
    counters = load_compact(path, model, updater)
    if counters is None:
        raise InputError(f"{path} holds no training state: give the folder of a run or of an export")
    return counters


def _check_names(path: Path, model: nn.Module, weights: dict[str, Tensor]) -> None:
    expected = model.state_dict()
    fits = expected.keys() == weights.keys() and all(expected[n].shape == w.shape for n, w in weights.items())
    if not fits:
        raise InputError(f"the state in {path} belongs to another network: continue it with the preset it began with")


def _copy_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, value in model.state_dict().items():
        value.copy_(weights[name])
