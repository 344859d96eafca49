"""How good the averaged weights are now: on held-out rendered pairs and on real ones."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from matchattention.training.batch import Batch
from matchattention.training.eval_pairs import RealPair

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


class Validator:
    """Measures a set of weights on fixed pairs with a plain, uncompiled copy of the network in fp32.

    Attributes:
        network: The copy; its weights are those measured last.
    """

    def __init__(self, model: nn.Module, rendered: Sequence[Batch], real: Sequence[RealPair]) -> None:
        self.network = copy.deepcopy(model).eval().requires_grad_(False)
        self.rendered = list(rendered)
        self.real = list(real)

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

    def _measured(self) -> Iterator[tuple[str, dict[str, Tensor]]]:
        for batch in self.rendered:
            for index in range(batch.image0.shape[0]):
                field = self.network(batch.image0[index, None], batch.image1[index, None]).field
                values = errors(field[0], batch.field0[index], batch.valid0[index])
                yield "rendered", {name: values[name] for name in ("epe", "bad1", "bad3")}
        for pair in self.real:
            device = next(self.network.parameters()).device
            left, right = (_image(view, device) for view in (pair.left, pair.right))
            disparity = torch.from_numpy(np.ascontiguousarray(pair.disparity)).to(device)
            known = torch.isfinite(disparity)
            visible = known & torch.from_numpy(np.ascontiguousarray(pair.visible)).to(device)
            x = -torch.where(known, disparity, torch.zeros((), device=device))
            truth = torch.stack((x, torch.zeros_like(x)), -1)
            field = self.network(left, right).field[0]
            yield f"{pair.dataset}-all", errors(field, truth, known)
            yield f"{pair.dataset}-noc", errors(field, truth, visible)


def _image(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array)).to(device)
    return tensor.permute(2, 0, 1).unsqueeze(0).float()


@contextmanager
def full_precision() -> Iterator[None]:
    """Validate without reduced-precision products, and without tuning convolutions for each image size."""
    precision, tuning = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = tuning
