"""How good the averaged weights are now: on held-out rendered pairs and on real ones."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from matchattention.training.batch import Batch
from matchattention.training.eval_pairs import RealPair

SIZE_STEP = 256  # px; real pairs are padded to multiples of it
PAIRS_AT_ONCE = 4
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
    dtype they have in training, real pairs are padded to few sizes, and all of one size go through together.

    Args:
        model: The network to copy.
        rendered: Batches with ground truth.
        real: Real pairs.
        mixed_precision: bf16 features, as in the training.

    Attributes:
        network: The copy; its weights are those measured last.
    """

    def __init__(
        self,
        model: nn.Module,
        rendered: Sequence[Batch],
        real: Sequence[RealPair],
        mixed_precision: bool = False,
    ) -> None:
        self.network = copy.deepcopy(model).eval().requires_grad_(False)
        self.device = next(self.network.parameters()).device
        self.mixed_precision = mixed_precision
        self.rendered = list(rendered)
        self._real = list(_pad_together(real, self.device))

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
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed_precision):
            return self.network(left, right).field[: left.shape[0]].float()

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
                disparity = torch.from_numpy(np.ascontiguousarray(pair.disparity)).to(self.device)
                known = torch.isfinite(disparity)
                visible = known & torch.from_numpy(np.ascontiguousarray(pair.visible)).to(self.device)
                x = -torch.where(known, disparity, torch.zeros((), device=self.device))
                truth = torch.stack((x, torch.zeros_like(x)), -1)
                yield f"{pair.dataset}-all", errors(field, truth, known)
                yield f"{pair.dataset}-noc", errors(field, truth, visible)


def _pad_together(pairs: Sequence[RealPair], device: torch.device) -> Iterator[_Padded]:
    """Groups of at most `PAIRS_AT_ONCE`, their borders repeated at the top and on the right as the network does."""
    groups: dict[tuple[int, int], list[RealPair]] = defaultdict(list)
    for pair in pairs:
        height, width = pair.disparity.shape
        groups[-(-height // SIZE_STEP) * SIZE_STEP, -(-width // SIZE_STEP) * SIZE_STEP].append(pair)
    for (height, width), members in groups.items():
        for first in range(0, len(members), PAIRS_AT_ONCE):
            chosen = members[first : first + PAIRS_AT_ONCE]
            left, right = (
                torch.stack([_padded([pair.left, pair.right][side], height, width) for pair in chosen]).to(device)
                for side in (0, 1)
            )
            yield _Padded(chosen, left, right)


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
