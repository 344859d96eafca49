"""What a network is made of, as data. Every ablation of the paper is a value here, not a branch elsewhere."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from matchattention.errors import InputError
from matchattention.layers.families import FAMILIES
from matchattention.ops.match_attention.function import SIMILARITIES
from matchattention.ops.match_attention.positions import check_window

Window = tuple[int, int]

# What a value may be, from the fewest to the most: far beyond any use, far below what no machine can hold.
_EXTENTS = {
    "channels": (1, 8192),
    "encoder_depths": (0, 128),
    "decoder_depths": (0, 128),
    "heads": (1, 256),
    "compression": (1, 256),
    "initial_layers": (0, 64),
    "sinkhorn_iterations": (0, 1000),
}
_FLAGS = ("self_sees_cross", "gate", "occlusion_loss", "residual_scales", "self_mask")


@dataclass(frozen=True)
class NetworkConfig:
    """A network, down to the last choice. Scales of decoder values run 1/32, 1/16, 1/8, 1/4."""

    task: str = "stereo"
    """"stereo" keeps matches on the row and initialises along it; "flow" does neither."""
    channels: tuple[int, int, int, int] = (32, 64, 128, 256)
    """Encoder widths at 1/4, 1/8, 1/16, 1/32; the decoder's are the same, reversed."""
    encoder_depths: tuple[int, int, int, int] = (2, 2, 6, 2)
    """Encoder blocks per scale, finest first."""
    decoder_depths: tuple[int, int, int, int] = (8, 8, 8, 2)
    """MATBlocks per scale, coarsest first."""
    windows: tuple[Window, Window, Window, Window] = ((1, 4), (1, 4), (1, 4), (1, 4))
    """Expanded attention window per scale, rows x columns."""
    heads: int = 4
    """Attention heads; each has its own self position."""
    compression: int = 4
    """Q, K, V and the gate have channels / compression channels."""
    similarity: str = "l1"
    """"l1" or "dot"."""
    attention: str = "match"
    """Attention family: "match", "local", "neighborhood", "swin" or "global-1d"."""
    first_attention: str = "self"
    """First half of a block: "self", or "cross" for the double-cross ablation."""
    self_sees_cross: bool = True
    """Whether self-attention carries cross positions along, and so propagates matches to neighbours."""
    gate: bool = True
    """Whether the cross attention's output is gated by the reference view: half of the occlusion handling."""
    occlusion_loss: bool = True
    """Whether training masks occluded pixels online: the other half."""
    initial: str = "transport"
    """"transport" (the paper's) or "softmax" (the released networks')."""
    initial_layers: int = 2
    """Global-attention layers before the correlation."""
    sinkhorn_iterations: int = 8
    """Iterations of the optimal transport."""
    residual_scales: bool = True
    """Whether encoder stages 3 and 4 scale their residuals."""
    self_mask: bool = False
    """Whether self-attention sees a 0/1 non-occlusion mask (released networks)."""
    upsampling_border: str = "replicate"
    """Convex upsampling at image borders: "replicate", or "zero" (released networks)."""

    def __post_init__(self) -> None:
        self._check_extents()
        for window in self.windows:
            check_window(window)
        choices = {
            "task": ("stereo", "flow"),
            "similarity": SIMILARITIES,
            "attention": FAMILIES,
            "first_attention": ("self", "cross"),
            "initial": ("transport", "softmax"),
            "upsampling_border": ("replicate", "zero"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in tuple(allowed):
                raise InputError(f"{name} is one of {', '.join(allowed)}; got '{str(getattr(self, name))[:60]}'.")
        if any(width % (self.heads * self.compression) for width in self.channels):
            raise InputError(
                f"Every width of {self.channels} must be a multiple of heads x compression = "
                f"{self.heads * self.compression}."
            )

    def _check_extents(self) -> None:
        """Refuse what no network is made of before anything is built of it: configs come from files, too."""
        for name, (fewest, most) in _EXTENTS.items():
            value = getattr(self, name)
            scalar = isinstance(getattr(type(self), name), int)
            numbers = (value,) if scalar else value
            if (
                not isinstance(numbers, tuple)
                or len(numbers) != (1 if scalar else 4)
                or any(type(number) is not int or not fewest <= number <= most for number in numbers)
            ):
                how = "a whole number" if scalar else "four whole numbers"
                raise InputError(f"{name} must be {how} from {fewest} to {most}; got {str(value)[:60]}.")
        flags = [name for name in _FLAGS if not isinstance(getattr(self, name), bool)]
        if flags:
            raise InputError(f"{flags[0]} must be true or false; got {str(getattr(self, flags[0]))[:60]}.")
        pairs = self.windows if isinstance(self.windows, tuple) else ()
        if len(pairs) != 4 or not all(
            isinstance(pair, tuple) and [type(x) for x in pair] == [int, int] for pair in pairs
        ):
            raise InputError(f"Windows must be four pairs, one per scale; got {str(self.windows)[:60]}.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as stored in checkpoints."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NetworkConfig:
        """Back from :meth:`to_dict`, also after a trip through JSON."""
        if not isinstance(values, dict):
            raise InputError(f"A network's config is a table of its values; got {str(values)[:60]}.")
        known = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InputError(
                f"This checkpoint's config has values this version does not know: {', '.join(unknown)[:200]}. "
                "Upgrade matchattention."
            )

        def frozen(value: Any) -> Any:
            return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value

        return cls(**{name: frozen(value) for name, value in values.items()})
