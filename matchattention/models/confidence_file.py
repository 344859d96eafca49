"""Files of confidence heads: small, apart from the network's, and tied to the weights they were trained for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import matchattention
from matchattention.data.atomic import replacing
from matchattention.data.reading import reads
from matchattention.errors import InputError
from matchattention.layers.confidence_head import ConfidenceHead
from matchattention.models.checkpoint import load_weights, read_weights

FORMAT = "matchattention-confidence-1"


def fingerprint(network: nn.Module) -> str:
    """sha256 of a network's weights as fp16, by name: the same for a network and the half-precision file of it."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().to("cpu", torch.float16).contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_head(head: ConfidenceHead, path: str | Path, network: str, card: Mapping[str, Any] | None = None) -> None:
    """Write a head, whole or not at all.

    Args:
        head: what to write; in fp16.
        path: where to.
        network: the `fingerprint` of the network it belongs to.
        card: anything that serialises to JSON: the network's name and file, training, figures.
    """
    tensors = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in head.state_dict().items()}
    header = {
        "format": FORMAT,
        "version": matchattention.__version__,
        "network": network,
        "shape": json.dumps(head.shape),
        "card": json.dumps(dict(card or {})),
    }
    with replacing(path) as temporary:
        save_file(tensors, temporary, header)


@reads("a readable safetensors file", "train one with matchattention train-confidence")
def read_head_header(path: str | Path) -> tuple[str, dict[str, int], dict[str, Any]]:
    """The fingerprint of the network a head belongs to, the head's shape, and its card."""
    with safe_open(str(path), "pt") as file:
        header = file.metadata() or {}
    if header.get("format") != FORMAT:
        raise InputError(f"{path} is no confidence head: train one with matchattention train-confidence.")
    shape, card = json.loads(header["shape"]), json.loads(header["card"])
    if not isinstance(shape, dict) or not isinstance(card, dict) or not all(type(v) is int for v in shape.values()):
        raise ValueError("its header is no table")
    if set(shape) != {"channels", "width", "pixel_channels"} or not all(1 <= v <= 1024 for v in shape.values()):
        raise ValueError("it does not say how wide it is")
    return header["network"], shape, card


def load_head(path: str | Path, network: nn.Module | None = None) -> ConfidenceHead:
    """A head, in eval mode on the CPU in fp32.

    Raises:
        InputError: no such file, not a head, or one that belongs to other weights than ``network``'s.
    """
    owner, shape, card = read_head_header(path)
    if network is not None and owner != fingerprint(network):
        name = card.get("model", "another network")
        raise InputError(
            f"{path} belongs to other weights ({name}): train a head for these with matchattention train-confidence."
        )
    head = ConfidenceHead(**shape)
    load_weights(head, read_weights(path), str(path))
    return head.eval().requires_grad_(False)


def shipped_head(network: nn.Module) -> ConfidenceHead | None:
    """The head inside the package that belongs to these weights, if there is one."""
    folder = Path(str(resources.files("matchattention") / "weights" / "confidence"))
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    mark = fingerprint(network) if files else ""
    for path in files:
        if read_head_header(path)[0] == mark:
            return load_head(path)
    return None
