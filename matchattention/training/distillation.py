"""Self-distillation from a fixed teacher, and samples that it finds hopeless.

The teacher, a trained network that never changes, sees each pair as it was made. The student sees it perturbed, and is
asked for the ground truth and for the teacher's own field: where both agree that a surface can be matched, it should
be matched in worse pictures too (LiteAnyStereo V2 found a fixed teacher better than a moving average). Samples that
the teacher gets mostly wrong teach little but guessing (FoundationStereo drops them); they lose their ground truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.models import checkpoint
from matchattention.training.losses import MatchesLike, masked_mean


@dataclass(frozen=True)
class DistillationConfig:
    """What a student learns from a teacher.

    Attributes:
        teacher: A shipped model's name or a checkpoint; it stays as it is.
        weight: Of the L1 to the teacher's field, relative to the whole loss; 0 for dropping samples alone.
        trusted: px; the teacher is followed where it is this close to the truth, and where a sample's truth has gaps.
        gain: Deviation of the natural log of the brightness that each view gets on its own.
        noise: Largest deviation of added noise, grey levels.
        erase: Share of pairs that lose a rectangle of the second view.
        hopeless: Share of wrong pixels above which a sample is dropped; 1 for none.
        wrong: px; from where a pixel counts as wrong.
    """

    teacher: str = "rt"
    weight: float = 0.5
    trusted: float = 1.0
    gain: float = 0.2
    noise: float = 10.0
    erase: float = 0.5
    hopeless: float = 1.0
    wrong: float = 2.0

    def __post_init__(self) -> None:
        if self.weight < 0 or self.noise < 0 or self.gain < 0:
            raise InputError("Weights and perturbations of a distillation cannot be negative")
        if not 0 < self.hopeless <= 1:
            raise InputError(
                f"The share of wrong pixels of a hopeless sample must lie in (0, 1], not {self.hopeless:g}"
            )


class Distillation:
    """A teacher beside a training; everything it does can be captured in a CUDA graph.

    Args:
        config: What is learned.
        device: Where the student trains.
        teacher: In place of ``config.teacher``.
    """

    def __init__(self, config: DistillationConfig, device: torch.device, teacher: nn.Module | None = None) -> None:
        self.config = config
        network = checkpoint.load(config.teacher) if teacher is None else teacher
        self.teacher = network.to(device).eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, batch: Batch, mixed_precision: bool) -> tuple[Batch, Tensor, Tensor]:
        """Ask the teacher, then spoil the images.

        Args:
            batch: Without broken samples.
            mixed_precision: Whether the teacher's features are bf16.

        Returns:
            The batch for the student, the teacher's field (2B, H, W, 2) px, and how many samples were dropped.
        """
        with torch.autocast(batch.image0.device.type, dtype=torch.bfloat16, enabled=mixed_precision):
            field = self.teacher(batch.image0, batch.image1).field.float()
        batch, dropped = drop_hopeless(batch, field, self.config)
        return perturb(batch, self.config), field, dropped

    def term(self, matches: MatchesLike, field: Tensor, batch: Batch) -> Tensor:
        """L1 in px between student and teacher where the teacher is trusted; samples without truth teach nothing."""
        truth, valid = _stacked(batch)
        close = (field - truth).abs().sum(-1) <= self.config.trusted
        checked = valid.any(1).any(1).view(-1, 1, 1)  # a dropped sample's teacher is wrong nearly everywhere
        return masked_mean((matches.field.float() - field).abs().sum(-1), (close | ~valid) & checked)


def _stacked(batch: Batch) -> tuple[Tensor, Tensor]:
    return torch.cat((batch.field0, batch.field1)), torch.cat((batch.valid0, batch.valid1))


def drop_hopeless(batch: Batch, field: Tensor, config: DistillationConfig) -> tuple[Batch, Tensor]:
    """Take the ground truth from samples that a field (2B, H, W, 2) px gets wrong nearly everywhere."""
    truth, valid = _stacked(batch)
    wrong = ((field - truth).abs().sum(-1) > config.wrong) & valid
    share = wrong.unflatten(0, (2, -1)).sum((0, 2, 3)) / valid.unflatten(0, (2, -1)).sum((0, 2, 3)).clamp(min=1)
    kept = share <= config.hopeless  # (B,)
    mask = kept.view(-1, 1, 1)
    return batch._replace(valid0=batch.valid0 & mask, valid1=batch.valid1 & mask), (~kept).sum()


def perturb(batch: Batch, config: DistillationConfig) -> Batch:
    """Each view brighter or darker, noisier, and a rectangle of the second one grey."""
    views = []
    for image in (batch.image0, batch.image1):
        count, device = image.shape[0], image.device
        gain = torch.exp(config.gain * torch.randn(count, 3, 1, 1, device=device) / 2)
        gain = gain * torch.exp(config.gain * torch.randn(count, 1, 1, 1, device=device))
        deviation = config.noise * torch.rand(count, 1, 1, 1, device=device)
        views.append((image * gain + deviation * torch.randn_like(image)).clamp(0, 255))
    return batch._replace(image0=views[0], image1=_erase(views[1], config.erase))


def _erase(image: Tensor, share: float) -> Tensor:
    """A rectangle of up to a quarter of each side takes the image's mean colour, in a share of the samples."""
    count, _, height, width = image.shape
    draws = torch.rand(5, count, 1, 1, device=image.device)
    y = torch.arange(height, device=image.device).view(1, -1, 1) / height
    x = torch.arange(width, device=image.device).view(1, 1, -1) / width
    inside = ((y - draws[0]).abs() < draws[2] / 8) & ((x - draws[1]).abs() < draws[3] / 8) & (draws[4] < share)
    return torch.where(inside[:, None], image.mean((2, 3), keepdim=True), image)
