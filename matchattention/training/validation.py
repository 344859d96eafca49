"""How good the averaged weights are now: on held-out rendered pairs and on real ones."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from matchattention.data.batch import Batch
from matchattention.training.real_pairs import RealPair

PAIRS_AT_ONCE = 4
# px; Triton compiles a kernel again when 16 comes to divide a length: at 1/32, the coarsest scale, or at a finer one.
WHOLE_AT_EVERY_SCALE = 16 * 32
METRICS = ("epe", "bad1", "bad2", "bad3", "d1")


def errors(field: Tensor, truth: Tensor, valid: Tensor) -> dict[str, Tensor]:
    """Error measures over the valid pixels; percentages except ``epe`` in px.

    Args:
        field: (…, 2) px.
        truth: (…, 2) px.
        valid: (…) bool.

    Returns:
        epe, bad1, bad2, bad3, and d1: wrong by more than 3 px and 5 % of the ground truth.
    """
    distance = torch.linalg.vector_norm(field - truth, dim=-1)
    distance = torch.where(valid, distance, torch.zeros((), device=field.device))
    count = valid.sum().clamp(min=1)
    length = torch.linalg.vector_norm(truth, dim=-1)
    outlier = (distance > 3) & (distance > 0.05 * length)
    shares = {f"bad{limit}": (distance > limit) for limit in (1, 2, 3)} | {"d1": outlier & valid}
    return {"epe": distance.sum() / count, **{name: 100 * s.sum() / count for name, s in shares.items()}}


class _Padded(NamedTuple):
    """Real pairs at one size.

    Attributes:
        pairs: As they were read.
        left: (n, 3, H, W) uint8, on the network's device.
        right: (n, 3, H, W) uint8.
    """

    pairs: list[RealPair]
    left: Tensor
    right: Tensor


class Validator:
    """Measures a set of weights on fixed pairs with a plain, uncompiled copy of the network.

    What costs time on a GPU is not the pairs but the kernels built for new dtypes and sizes. Features have the
    dtype they have in training, pairs are padded to few sizes for which training's kernels serve, and all of one
    size go through together.

    Args:
        model: The network to copy.
        rendered: Batches with ground truth.
        real: Real pairs.
        mixed_precision: bf16 features, as in the training.
        crop: Height and width that kernels have been built for in training, px.

    Attributes:
        network: The copy; its weights are those measured last.
    """

    def __init__(
        self,
        model: nn.Module,
        rendered: Sequence[Batch],
        real: Sequence[RealPair],
        mixed_precision: bool = False,
        crop: tuple[int, int] = (32, 32),
    ) -> None:
        self.network = copy.deepcopy(model).eval().requires_grad_(False)
        self.device = next(self.network.parameters()).device
        self.mixed_precision = mixed_precision
        self.rendered = list(rendered)
        self.crop = crop
        self._real = list(self._padded_together(real))

    @property
    def has_real(self) -> bool:
        """Whether pairs of datasets are among those measured."""
        return bool(self._real)

    @property
    def pixels(self) -> int:
        """Of one view of all pairs."""
        rendered = sum(batch.image0.shape[0] * batch.image0[0, 0].numel() for batch in self.rendered)
        return rendered + sum(group.left.shape[0] * group.left[0, 0].numel() for group in self._real)

    @torch.no_grad()
    def measure(self, weights: Mapping[str, Tensor]) -> dict[str, float]:
        """Mean errors per set, as ``rendered/bad1``, ``middlebury-noc/bad2`` and so on."""
        own = self.network.state_dict()
        for name, value in weights.items():
            own[name].copy_(value)
        sums: dict[str, list[Tensor]] = defaultdict(list)
        for group, values in self._measured():
            for name, value in values.items():
                sums[f"{group}/{name}"].append(value)
        if not sums:
            return {}
        names = list(sums)
        means = torch.stack([torch.stack(sums[name]).mean() for name in names]).tolist()
        return dict(zip(names, means))

    def _left_fields(self, left: Tensor, right: Tensor) -> Tensor:
        """(n, H, W, 2) px."""
        count, _, height, width = left.shape
        rows, columns = self._padded_size(height, width)
        left, right = (F.pad(view, (0, columns - width, rows - height, 0), mode="replicate") for view in (left, right))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed_precision):
            field = self.network(left, right).field
        return field[:count, rows - height :, :width].float()

    def _measured(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        for batch in self.rendered:
            fields = self._left_fields(batch.image0, batch.image1)
            for field, truth, valid in zip(fields, batch.field0, batch.valid0):
                values = errors(field, truth, valid)
                yield "rendered", {name: values[name] for name in ("epe", "bad1", "bad3")}
        for padded in self._real:
            fields = self._left_fields(padded.left.float(), padded.right.float())
            for pair, whole in zip(padded.pairs, fields):
                height, width = pair.disparity.shape
                field = whole[-height:, :width]
                truth = torch.from_numpy(np.ascontiguousarray(pair.field)).to(self.device)
                known = torch.isfinite(truth).all(-1)
                visible = known & torch.from_numpy(np.ascontiguousarray(pair.visible)).to(self.device)
                truth = torch.where(known.unsqueeze(-1), truth, torch.zeros((), device=self.device))
                yield f"{pair.dataset}-all", errors(field, truth, known)
                yield f"{pair.dataset}-noc", errors(field, truth, visible)

    def _padded_size(self, height: int, width: int) -> tuple[int, int]:
        return padded_length(height, self.crop[0]), padded_length(width, self.crop[1])

    def _padded_together(self, pairs: Sequence[RealPair]) -> Iterator[_Padded]:
        """Groups of at most `PAIRS_AT_ONCE`, their borders repeated at the top and on the right as the network does."""
        groups: dict[tuple[int, int], list[RealPair]] = defaultdict(list)
        for pair in pairs:
            groups[self._padded_size(*pair.disparity.shape)].append(pair)
        for (height, width), members in groups.items():
            for first in range(0, len(members), PAIRS_AT_ONCE):
                chosen = members[first : first + PAIRS_AT_ONCE]
                left = torch.stack([_padded(pair.left, height, width) for pair in chosen])
                right = torch.stack([_padded(pair.right, height, width) for pair in chosen])
                yield _Padded(chosen, left.to(self.device), right.to(self.device))


def padded_length(length: int, like: int) -> int:
    """The next length that 16 divides at the same scales as ``like``, px."""
    step = min(like & -like, WHOLE_AT_EVERY_SCALE)
    count = -(-length // step)
    if step < WHOLE_AT_EVERY_SCALE:
        count |= 1  # an even multiple would be whole at one more scale
    return count * step


def _padded(image: NDArray[np.uint8], height: int, width: int) -> Tensor:
    """(3, height, width) of an (H, W, 3) image."""
    above, beyond = height - image.shape[0], width - image.shape[1]
    whole = np.pad(image, ((above, 0), (0, beyond), (0, 0)), mode="edge")
    return torch.from_numpy(np.ascontiguousarray(whole.transpose(2, 0, 1)))


@contextmanager
def untuned_convolutions() -> Iterator[None]:
    """Validate without trying every convolution algorithm for sizes that are seen a few times only."""
    tuning = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = tuning
