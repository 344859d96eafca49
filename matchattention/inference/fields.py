"""Arrays that stay on the device where they were computed until somebody looks at them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class FieldTensors(NamedTuple):
    """A prediction's fields on their device; with a leading batch axis where the images had one.

    Attributes:
        relative_position: (H, W, 2) fp32 px of the first view.
        relative_position_right: (H, W, 2) fp32 px of the second view.
        occlusion: (H, W) bool.
        confidence: (H, W) fp32.
        agreement: (H, W) fp32, or None where it is the confidence.
        error: (H, W) fp32 px, one sigma, or None where no head found it.
    """

    relative_position: Tensor
    relative_position_right: Tensor
    occlusion: Tensor
    confidence: Tensor
    agreement: Tensor | None = None
    error: Tensor | None = None

    def pair(self, index: int) -> FieldTensors:
        """The fields of one pair of a batch."""
        return FieldTensors(*(part if part is None else part[index] for part in self))  # type: ignore[arg-type]

    @property
    def disparity(self) -> Tensor:
        """(H, W) px of the left view, positive."""
        return (-self.relative_position[..., 0]).clamp(min=0)

    @property
    def disparity_right(self) -> Tensor:
        """(H, W) px of the right view, positive."""
        return self.relative_position_right[..., 0].clamp(min=0)


class OnDevice:
    """A dataclass field that is given as a tensor or an array, and read as an array; made when it is first read.

    Args:
        optional: whether it may be left out, and is None then.
    """

    def __init__(self, optional: bool = False) -> None:
        self._optional = optional

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> NDArray[Any] | None:
        if instance is None:
            if self._optional:
                return None  # a dataclass asks for a default
            raise AttributeError(self._name)  # there is none
        made = instance.__dict__.get(self._name)
        if made is None:
            made = instance.__dict__[self._name] = to_array(instance.__dict__[f"_{self._name}"])
        return made

    def __set__(self, instance: Any, value: Tensor | NDArray[Any]) -> None:
        instance.__dict__[f"_{self._name}"] = value


def on_device(instance: Any, name: str) -> Tensor | None:
    """What an `OnDevice` field was given, as a tensor."""
    value = instance.__dict__[f"_{name}"]
    return value if value is None or isinstance(value, Tensor) else torch.from_numpy(np.ascontiguousarray(value))


def to_array(value: Any) -> Any:
    """A tensor of any device as an array; from a GPU through pinned memory, which is several times as fast."""
    if not isinstance(value, Tensor):
        return value
    if not value.is_cuda:
        return value.numpy()
    pinned = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
    pinned.copy_(value, non_blocking=True)
    torch.cuda.current_stream(value.device).synchronize()
    return pinned.numpy()
