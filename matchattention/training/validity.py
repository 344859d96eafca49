"""Samples a network must not learn from are silenced and counted, without asking the GPU to wait."""

from __future__ import annotations

import torch
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.training.targets import believable

# A few unconverged pixels are masked one by one; a sample with more of them is a broken sample.
MOST_BAD_PIXELS = 0.05


def _images_usable(images: Tensor) -> Tensor:
    """(B,) bool: finite and in [0, 255], with slack for resampling and sensor noise."""
    inside = (images >= -64) & (images <= 320)  # false for NaN
    return inside.flatten(1).all(1)


def silence_bad_samples(batch: Batch) -> tuple[Batch, Tensor]:
    """Remove ground truth from samples with unusable images or mostly absurd ground truth.

    Pixels whose ground truth is not finite or longer than the image become unknown; a sample with
    more than 5 % of them, without any ground truth, or with images that are not finite or far outside
    [0, 255] loses all of it, and its images are blanked so that no NaN enters the network.

    Returns:
        The batch to train on (same shapes) and the number of silenced samples, a scalar tensor.
    """
    fields = torch.stack((batch.field0, batch.field1))  # (2, B, H, W, 2)
    valid = torch.stack((batch.valid0, batch.valid1))
    good = valid & believable(fields)
    claimed = valid.sum((0, 2, 3))
    absurd = claimed - good.sum((0, 2, 3))
    usable = (claimed > 0) & (absurd <= MOST_BAD_PIXELS * claimed)
    usable = usable & _images_usable(batch.image0) & _images_usable(batch.image1)
    good = good & usable.view(1, -1, 1, 1)
    zero = torch.zeros((), device=fields.device, dtype=fields.dtype)
    fields = torch.where(good.unsqueeze(-1), fields, zero)
    shown = usable.view(-1, 1, 1, 1)
    blank = torch.zeros((), device=batch.image0.device, dtype=batch.image0.dtype)
    cleaned = batch._replace(
        image0=torch.where(shown, batch.image0, blank),
        image1=torch.where(shown, batch.image1, blank),
        field0=fields[0],
        field1=fields[1],
        valid0=good[0],
        valid1=good[1],
    )
    return cleaned, (~usable).sum()
