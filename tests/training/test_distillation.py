"""A fixed teacher: followed where it is right, silent where it is not, and hopeless samples are dropped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from matchattention.cli.main import main
from matchattention.data.batch import Batch
from matchattention.errors import InputError
from matchattention.training.distillation import Distillation, DistillationConfig, drop_hopeless, perturb
from matchattention.training.losses import LossConfig
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.sources import ShiftedCards
from matchattention.training.step import TrainingStep
from tests.training.networks import TinyNetwork

CPU = torch.device("cpu")


class Teacher(nn.Module):
    """Knows the first sample and is 9 px off in the second."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        field = torch.stack((batch.field0, batch.field1))  # (2, B, H, W, 2)
        field[:, 1] += 9
        self.field = field.flatten(0, 1)

    def forward(self, image0: torch.Tensor, image1: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(field=self.field)


@pytest.fixture
def batch() -> Batch:
    return ShiftedCards(3).batch(0, 2, 32, 64)


def test_hopeless_samples_lose_their_truth(batch: Batch) -> None:
    kept, dropped = drop_hopeless(batch, Teacher(batch).field, DistillationConfig(hopeless=0.6))
    assert dropped == 1
    assert kept.valid0[0].all()
    assert not kept.valid0[1].any()
    assert not kept.valid1[1].any()
    assert drop_hopeless(batch, Teacher(batch).field, DistillationConfig())[1] == 0


def test_students_see_spoilt_images_and_teachers_clean_ones(batch: Batch) -> None:
    seen = []
    teacher = Teacher(batch)
    teacher.register_forward_pre_hook(lambda module, images: seen.append(images[0].clone()))
    spoilt, field, _ = Distillation(DistillationConfig(), CPU, teacher)(batch, False)
    assert torch.equal(seen[0], batch.image0)
    assert torch.equal(field, teacher.field)
    assert (spoilt.image0 - batch.image0).abs().mean() > 1
    assert spoilt.image1.min() >= 0
    assert spoilt.image1.max() <= 255
    unspoilt = perturb(batch, DistillationConfig(gain=0, noise=0, erase=0))
    torch.testing.assert_close(unspoilt.image1, batch.image1)


def test_a_teacher_is_followed_where_it_is_right(batch: Batch) -> None:
    teacher = Teacher(batch)
    distillation = Distillation(DistillationConfig(trusted=1.0), CPU, teacher)
    student = SimpleNamespace(field=teacher.field + 3)  # 6 px away in L1
    assert distillation.term(student, teacher.field, batch) == pytest.approx(6)
    nowhere = teacher.field.clone()
    nowhere[0] += 50  # wrong in one more view of the sample that was right
    term = distillation.term(SimpleNamespace(field=nowhere + 1), nowhere, batch)
    assert term == pytest.approx(2)


def test_a_teacher_is_followed_where_the_truth_is_unknown(batch: Batch) -> None:
    """The second sample, of which it is 9 px off, counts where nobody knows better."""
    teacher = Teacher(batch)
    valid0 = batch.valid0.clone()
    valid0[1, :, :5] = False
    distillation = Distillation(DistillationConfig(trusted=1.0), CPU, teacher)
    apart = torch.zeros_like(teacher.field)
    apart[1, :, :5, 0] = 12.0  # of (left 0, left 1, right 0, right 1)
    term = distillation.term(SimpleNamespace(field=teacher.field + apart), teacher.field, batch._replace(valid0=valid0))
    followed = 2 * 32 * 64 + 32 * 5  # both views of the first sample, and those pixels
    assert term == pytest.approx(12.0 * 32 * 5 / followed)


def test_a_dropped_sample_teaches_nothing(batch: Batch) -> None:
    """Without its truth the teacher, who is wrong there, must not be believed."""
    teacher = Teacher(batch)
    distillation = Distillation(DistillationConfig(hopeless=0.6, gain=0, noise=0, erase=0), CPU, teacher)
    left, field, dropped = distillation(batch, False)
    assert dropped == 1
    student = SimpleNamespace(field=field.clone())
    student.field.view(2, -1, *field.shape[1:])[:, 1] += 100
    assert distillation.term(student, field, left) == 0


def test_a_step_learns_from_a_teacher_alone(batch: Batch) -> None:
    """Without ground truth nothing but the teacher gives gradients."""
    torch.manual_seed(0)
    silent = batch._replace(valid0=batch.valid0 & False, valid1=batch.valid1 & False)
    # One known pixel each, else a sample counts as broken.
    for valid in (silent.valid0, silent.valid1):
        valid[:, 0, 0] = True
    norms = []
    for weight in (0.0, 1.0):
        model = TinyNetwork()
        updater = Updater(model, OptimizerConfig())
        distillation = Distillation(DistillationConfig(weight=weight, gain=0, noise=0, erase=0), CPU, Teacher(batch))
        step = TrainingStep(model, updater, LossConfig(), mixed_precision=False, distillation=distillation)
        step(silent, 1e-3, 1)
        terms = step.read_totals()
        assert terms["distillation"] > 0
        norms.append(terms["loss"])
    assert norms[1] > norms[0]


def test_bad_options_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="hopeless"):
        DistillationConfig(hopeless=0)
    assert main(["train", "tiny-smoke", "--drop-hopeless", "0.6"]) == 2
    assert "need a --teacher" in capsys.readouterr().err
