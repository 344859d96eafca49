"""Checkpoints: safetensors files that carry their whole config, provenance, metrics and licence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

import matchattention
from matchattention.data.atomic import replacing
from matchattention.data.reading import reads
from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork
from matchattention.models.registry import NETWORKS, create_model

FORMAT = "matchattention-1"


def save(
    weights: nn.Module | Mapping[str, Tensor],
    path: str | Path,
    config: NetworkConfig,
    metadata: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        weights: a network or its state.
        path: where; by convention ending in .safetensors.
        config: what the network is made of.
        metadata: anything that serialises to JSON: licence, provenance, metrics, recipe.
        dtype: cast floating weights to this, e.g. torch.float16 for shipping.
    """
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    tensors = {
        name: value.detach().to("cpu", dtype if value.is_floating_point() else None).contiguous()
        for name, value in state.items()
    }
    header = {
        "format": FORMAT,
        "version": matchattention.__version__,
        "config": json.dumps(config.to_dict()),
        "metadata": json.dumps(dict(metadata or {})),
    }
    with replacing(path) as temporary:
        save_file(tensors, temporary, header)


@reads("a readable safetensors file", "download or copy it again")
def read_header(path: str | Path) -> tuple[NetworkConfig, dict[str, Any]]:
    """Config and metadata of a checkpoint, without its weights."""
    with safe_open(str(path), "pt") as file:
        header = file.metadata() or {}
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is a safetensors file but not a matchattention checkpoint; it lacks a config.")
    metadata = json.loads(header["metadata"])
    if not isinstance(metadata, dict):
        raise ValueError("its metadata is no table")
    try:
        return NetworkConfig.from_dict(json.loads(header["config"])), metadata
    except InputError as error:
        raise InputError(f"{path} does not describe a network: {error}") from None


@reads("a readable safetensors file", "download or copy it again")
def read_weights(path: str | Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, on the CPU."""
    with safe_open(str(path), "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)


def build(config: NetworkConfig, weights: Mapping[str, Tensor], origin: str) -> MatchNetwork:
    """The network of a config with these weights, in fp32; nothing is allocated for weights that do not fit it.

    Raises:
        InputError: the weights belong to another network, or are no finite real numbers.
    """
    with torch.device("meta"):
        check_weights(create_model(config), weights, origin)
    network = create_model(config)
    load_weights(network, weights, origin)
    return network


def check_weights(network: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Refuse weights of another network, and those that are no finite real numbers.

    Raises:
        InputError: with the missing, unknown, differently shaped or unusable weights.
    """
    expected = network.state_dict()
    missing = sorted(set(expected) - set(weights))
    unknown = sorted(set(weights) - set(expected))
    common = sorted(set(expected) & set(weights))
    shapes = [
        f"{name} is {tuple(weights[name].shape)} in the file, {tuple(expected[name].shape)} in the network"
        for name in common
        if weights[name].shape != expected[name].shape
    ]
    complaints = [f"missing {_some(missing)}"] * bool(missing) + [f"unknown {_some(unknown)}"] * bool(unknown)
    complaints += [_some(shapes)] * bool(shapes)
    if complaints:
        raise InputError(f"The weights of {origin} do not fit this network: {'; '.join(complaints)}.")
    flaws = [f"{name} {flaw}" for name in common if (flaw := _flaw(weights[name], expected[name].dtype))]
    if flaws:
        raise InputError(
            f"The weights of {origin} cannot be used: {_some(flaws)}; take an earlier checkpoint or download it again."
        )


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
    """Strict loading in fp32; what does not fit is listed.

    Raises:
        InputError: see `check_weights`.
    """
    check_weights(network, weights, origin)
    expected = network.state_dict()
    network.load_state_dict({name: value.to(expected[name].dtype) for name, value in weights.items()})


def _flaw(value: Tensor, dtype: torch.dtype) -> str:
    """What keeps a tensor from being a weight, if anything."""
    if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
        return "is sparse, quantised or empty"
    if value.is_complex() or value.is_floating_point() != dtype.is_floating_point:
        return f"is {str(value.dtype).removeprefix('torch.')}"
    # One sum tells whether all are finite; only then is it worth looking which.
    if value.is_floating_point() and not value.to(dtype).sum(dtype=torch.float64).isfinite():
        return "holds NaN or infinite numbers"
    return ""


def load(name: str | Path, task: str | None = None) -> MatchNetwork:
    """A network with trained weights, in eval mode on the CPU in fp32.

    Args:
        name: a shipped model such as "rt", a .safetensors checkpoint, or a released .pth file.
        task: "stereo" or "flow": refuse a checkpoint made for the other; required sense of a .pth file,
            which does not say (stereo if not given).
    """
    path = _locate(name)
    if path.suffix == ".pth":
        from matchattention.models.released import read_released

        config, weights = read_released(path, task or "stereo")
    else:
        config, _ = read_header(path)
        weights = read_weights(path)
    if task is not None and config.task != task:
        raise InputError(f"{name} is a {config.task} model, but {task} was asked for; choose another with --model.")
    return build(config, weights, str(name)).eval()


def shipped() -> dict[str, Path]:
    """The trained models inside the package, by name."""
    folder = Path(str(resources.files("matchattention") / "weights"))
    return {path.stem: path for path in sorted(folder.glob("*.safetensors"))}


def _locate(name: str | Path) -> Path:
    models = shipped()
    if str(name) in models:
        return models[str(name)]
    path = Path(name)
    if path.is_file():
        return path
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the .safetensors file in it, such as {path / 'model.safetensors'}.")
    known = ", ".join(models) or "none yet"
    if str(name) in NETWORKS:
        base = "rt-flow-synth" if NETWORKS[str(name)].config.task == "flow" else "rt-synth"
        preset = base if base == f"{name}-synth" else f"{base} --model {name}"
        raise InputError(
            f"No trained weights ship for '{name}' (shipped: {known}); give a .safetensors file, train it with "
            f"'matchattention train {preset}', or use create_model('{name}') for random weights."
        )
    raise InputError(f"'{name}' is neither a shipped model ({known}) nor a file; check the path.")


def _some(names: list[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(name[:120] for name in names[:limit]) + more
