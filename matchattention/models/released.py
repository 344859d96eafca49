"""Checkpoints the paper's authors released, under our names.

Their network is a config of ours; what differs is how its weights are called and
that they keep Q, K, V and gate as separate matrices where we keep one.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from matchattention.data.reading import reads
from matchattention.errors import InputError
from matchattention.models.config import NetworkConfig
from matchattention.models.registry import NETWORKS

# (their name, ours); \1 … refer to the groups. Applied to whole names.
_NAMES = [
    (r"encoder\.downsample_layers\.0\.0\.(.+)", r"encoder.stem.first.\1"),
    (r"encoder\.downsample_layers\.0\.3\.(.+)", r"encoder.stem.second.\1"),
    (r"encoder\.downsample_layers\.(\d)\.pre_norm\.(.+)", r"encoder.downsamplings.<\1>.norm.\2"),
    (r"encoder\.downsample_layers\.(\d)\.conv\.(.+)", r"encoder.downsamplings.<\1>.conv.\2"),
    (r"encoder\.(stages\.\d\.\d\.)token_mixer\.pwconv1\.(.+)", r"encoder.\1mixer.expand.\2"),
    (r"encoder\.(stages\.\d\.\d\.)token_mixer\.dwconv\.(.+)", r"encoder.\1mixer.depthwise.\2"),
    (r"encoder\.(stages\.\d\.\d\.)token_mixer\.pwconv2\.(.+)", r"encoder.\1mixer.contract.\2"),
    (r"encoder\.(stages\.\d\.\d\.)mlp\.fc1\.(.+)", r"encoder.\1mlp.expand.\2"),
    (r"encoder\.(stages\.\d\.\d\.)mlp\.fc2\.(.+)", r"encoder.\1mlp.contract.\2"),
    (r"encoder\.(stages\.\d\.\d\.norm[12]\..+)", r"encoder.\1"),
    (r"init_correlation_volume\.(.+)", r"initial.correlation.\1"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.field_scale", r"stages.\1.\2.beta"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.norm0\.(.+)", r"stages.\1.\2.first.norm.\3"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.norm1\.(.+)", r"stages.\1.\2.cross.norm.\3"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.norm2\.(.+)", r"stages.\1.\2.norm.\3"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.match_attention_self\.proj\.(.+)", r"stages.\1.\2.first.out.\3"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.match_attention_cross\.proj\.(.+)", r"stages.\1.\2.cross.out.\3"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.mlp\.fc1\.(.+)", r"stages.\1.\2.feedforward.expand.\3"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.mlp\.dwconv\.(.+)", r"stages.\1.\2.feedforward.depthwise.\3"),
    (r"match_attentions\.(\d)\.layers\.(\d)\.mlp\.fc2\.(.+)", r"stages.\1.\2.feedforward.contract.\3"),
    (r"up_decoders\.(\d)\.up\.(.+)", r"feature_upsamplings.<\1>.up.\2"),
    (r"up_decoders\.(\d)\.conv\.0\.(.+)", r"feature_upsamplings.<\1>.join.\2"),
    (r"up_decoders\.(\d)\.conv\.2\.(.+)", r"feature_upsamplings.<\1>.smooth.\2"),
    (r"up_masks\.4\.0\.(.+)", r"final_upsampling.head.\1"),
    (r"up_masks\.4\.2\.(.+)", r"final_upsampling.weights.\1"),
    (r"up_masks\.(\d)\.0\.(.+)", r"field_upsamplings.<\1>.head.\2"),
    (r"up_masks\.(\d)\.2\.(.+)", r"field_upsamplings.<\1>.weights.\2"),
]
# Stored but never used: the classifier, and residual scales their forward pass leaves out.
_UNUSED = re.compile(r"encoder\.(head|norm)\..+|encoder\.stages\.\d\.\d\.res_scale[12]\.scale")
_JOINED = re.compile(r"match_attentions\.(\d)\.layers\.(\d)\.match_attention_(self|cross)\.([qkvg])(?:\.0)?\.weight")


def convert_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their weights under our names; a name nobody knows is an error, never skipped."""
    converted: dict[str, Tensor] = {}
    joined: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        if _UNUSED.fullmatch(name):
            continue
        part = _JOINED.fullmatch(name)
        if part:
            stage, block, kind, letter = part.groups()
            target = f"stages.{stage}.{block}." + ("first.qkv" if kind == "self" else "cross.qkvg") + ".weight"
            joined.setdefault(target, {})[letter] = value
            continue
        ours = _rename(name)
        converted[ours] = value.reshape(2) if ours.endswith(".beta") and value.numel() == 2 else value
    for target, parts in joined.items():
        letters = "qkvg" if target.endswith("qkvg.weight") else "qkv"
        missing = [letter for letter in letters if letter not in parts]
        if missing:
            raise InputError(f"The checkpoint lacks the {', '.join(missing)} matrix of {target}; it is not complete.")
        converted[target] = torch.cat([parts[letter] for letter in letters])
    return converted


def _rename(name: str) -> str:
    for theirs, ours in _NAMES:
        found = re.fullmatch(theirs, name)
        if found:
            # Their lists of transitions count from one.
            return re.sub(r"<(\d)>", lambda number: str(int(number[1]) - 1), found.expand(ours))
    raise InputError(f"'{name[:80]}' is not a weight of a released MatchAttention network; convert takes only those.")


def infer_config(state: dict[str, Tensor], task: str) -> NetworkConfig:
    """The config whose weights these are: everything but the widths is common to all released networks."""
    try:
        widths = tuple(state[f"encoder.stages.{stage}.0.norm1.weight"].numel() for stage in range(4))
    except KeyError as error:
        raise InputError(f"The file has no weight {error}; it is not a released MatchAttention network.") from None
    return replace(NETWORKS["released-b"].config, channels=widths, task=task)  # type: ignore[arg-type]


@reads("a PyTorch checkpoint of tensors", "download it again")
def read_released(path: str | Path, task: str) -> tuple[NetworkConfig, dict[str, Tensor]]:
    """Config and converted weights of a released .pth file; only tensors are unpickled."""
    path = Path(path)
    _check_archive(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        # PyTorch's own words advise to load it without this safety: nothing that a user should read.
        raise InputError(
            f"{path} is not a PyTorch checkpoint of tensors, or it is cut short; download it again. "
            "Files that hold anything else are not opened, because they could run code."
        ) from None
    state = content.get("model", content) if isinstance(content, dict) else None
    if (
        not isinstance(state, dict)
        or not all(isinstance(name, str) for name in state)
        or not all(isinstance(value, Tensor) for value in state.values())
    ):
        raise InputError(f"{path} holds no weights under the key 'model'; it is not a released checkpoint.")
    state = {name.removeprefix("module."): value for name, value in state.items()}
    for name, value in state.items():
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            raise InputError(f"{path}: {name[:80]} is sparse, quantised or without values; export plain tensors.")
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise InputError(f"{path}: {name[:80]} has fewer values than its shape says; export plain tensors.")
    try:
        return infer_config(state, task), convert_state(state)
    except InputError as error:
        raise InputError(f"{path} does not fit: {error}") from None


def _check_archive(path: Path) -> None:
    """Refuse a zip archive that unpacks to more than it is: PyTorch stores tensors as they are."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > path.stat().st_size:
                raise InputError(f"{path} is a compressed archive; give the .pth file as it was released.")
