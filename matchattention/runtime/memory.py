"""The memory guard: how much a network needs for an image, how much there is, and what to do when it is less."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

from matchattention.models.config import NetworkConfig
from matchattention.models.network import COARSEST, LARGE

# Peak bytes a pixel, for each channel of the finest scale and each byte of a number, both views together.
# Measured as peak resident size on the CPU in fp32, 0.1 to 2 Mpx: rt 3.5 to 5.8, rt-flow 7.7; rounded up.
_BYTES_ROWS = 6.0
_BYTES_WINDOWS = 9.0
_ALL_PAIRS_COPIES = 11  # matrices of flow's correlation and transport alive at once; measured 9.1 to 10.6 on a CPU
_FIXED = 300e6  # libraries, weights in the air, fragmentation
_SHARE = 0.85  # of the free memory that may be planned for

STRIP_OVERLAP = 96  # rows of context above and below a strip
_STRIP_ROWS = (1536, 768, 384)  # multiples of the coarsest token
_SMALLEST_HALVED = 64  # px: halving below this leaves nothing to match


class MemoryPlan(NamedTuple):
    """How to get an image through a network.

    Attributes:
        halvings: times both images are halved first; the field is enlarged again afterwards.
        strip_rows: height of the strips the image is cut into; None: in one piece.
    """

    halvings: int = 0
    strip_rows: int | None = None

    def in_words(self, width: int, height: int) -> str:
        """What the plan means for the result, for a warning."""
        if self.strip_rows is not None:
            return f"it was matched in strips of {self.strip_rows} rows"
        factor = 2**self.halvings
        return f"it was matched at {width // factor}x{height // factor} and enlarged, fine detail is lost"


WHOLE = MemoryPlan()


def plans(config: NetworkConfig, height: int, width: int) -> list[MemoryPlan]:
    """What can be done with an image of this size, best result first.

    Rows of a rectified pair match within themselves, so stereo can be cut into strips that are as wide as the
    image. Flow cannot: a match may lie in another strip.
    """
    options = [WHOLE]
    if config.task == "stereo":
        options += [MemoryPlan(strip_rows=rows) for rows in _STRIP_ROWS if rows + 2 * STRIP_OVERLAP < height]
    halvings = 1
    while min(height, width) >> halvings >= _SMALLEST_HALVED:
        options.append(MemoryPlan(halvings=halvings))
        halvings += 1
    cheaper = [options[0]]
    for plan in options[1:]:  # a step down that needs more than the one before it is none
        if needed_bytes(config, height, width, plan, 4) < needed_bytes(config, height, width, cheaper[-1], 4):
            cheaper.append(plan)
    return cheaper


def needed_bytes(config: NetworkConfig, height: int, width: int, plan: MemoryPlan, number_bytes: int) -> float:
    """Estimated peak memory of one pair.

    Args:
        config: the network's.
        height: of the images, px.
        width: of the images, px.
        plan: what is done with them.
        number_bytes: of a feature: 4 for fp32, 2 for fp16 and bf16.
    """
    factor = 2**plan.halvings
    rows = height / factor if plan.strip_rows is None else min(height, plan.strip_rows + 2 * STRIP_OVERLAP)
    windowed = any(rows > 1 for rows, _ in config.windows)
    rate = (_BYTES_WINDOWS if windowed else _BYTES_ROWS) * config.channels[0] * number_bytes
    pixels = rows * width / factor
    tokens = pixels / 32**2
    if config.task == "flow":
        correlated = all_pairs_bytes(rows, width / factor)
    else:
        correlated = 8 * 4 * tokens * width / factor / 32
    fields = height * width * 2 * 8.0 * 3  # both views' result, its enlargement and the start
    return _FIXED + pixels * rate + correlated + fields


def all_pairs_bytes(height: float, width: float) -> float:
    """Peak memory of flow's all-pairs correlation at 1/32 in fp32.

    Above `LARGE` px the network starts from half the resolution, again and again: the matrix stops growing there.
    """
    while max(height, width) > LARGE:
        height, width = height / 2, width / 2
    tokens = math.ceil(height / COARSEST) * math.ceil(width / COARSEST)
    return _ALL_PAIRS_COPIES * tokens**2 * 4.0


def available_bytes(device: torch.device) -> float:
    """Memory that can be taken now, on the GPU or of this process's machine or container; inf where unknown."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What PyTorch has cached and does not use is as good as free.
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(_machine_bytes(), _container_bytes())


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; the CPU's allocator and CUDA's libraries raise RuntimeErrors."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    words = ("allocate memory", "out of memory", "ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def first_that_fits(config: NetworkConfig, height: int, width: int, device: torch.device, number_bytes: int) -> int:
    """Index into `plans` of the best one that the estimate says will fit; the last when none does."""
    options = plans(config, height, width)
    room = _SHARE * available_bytes(device)
    for index, plan in enumerate(options):
        if needed_bytes(config, height, width, plan, number_bytes) <= room:
            return index
    return len(options) - 1


def pairs_that_fit(config: NetworkConfig, height: int, width: int, device: torch.device, number_bytes: int) -> int:
    """How many pairs of this size the estimate says will fit into one pass, at least one."""
    one = needed_bytes(config, height, width, WHOLE, number_bytes) - _FIXED
    return max(1, int((_SHARE * available_bytes(device) - _FIXED) / one))


def _machine_bytes() -> float:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024
    with suppress(OSError, ValueError, AttributeError):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) / 2
    return float("inf")


def _container_bytes() -> float:
    """What the control group leaves: a container's limit is not in /proc/meminfo."""
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            return float(limit) - float((group / "memory.current").read_text())
    return float("inf")
