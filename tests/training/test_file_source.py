"""Pairs from files: the same every time, all of them every epoch, the truth with the right sign."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from matchattention.data.augmentation import AugmentationConfig
from matchattention.errors import InputError
from matchattention.training.file_source import LEAST_AHEAD, FileSource, open_samples, to_pair
from matchattention.training.lanes import Lane

STILL = AugmentationConfig(
    scale=(0.0, 0.0),
    stretch_probability=0.0,
    colour_probability=0.0,
    eraser_probability=0.0,
    shift_probability=0.0,
    mirror_probability=0.0,
)


def _sample(number: int, right: bool = True) -> SimpleNamespace:
    disparity = np.full((40, 70), 3.0 + number, np.float32)
    disparity[0] = np.inf
    image = np.full((40, 70, 3), number, np.uint8)
    return SimpleNamespace(
        name=str(number), left=image, right=image + 100, disparity=disparity,
        disparity_right=disparity.copy() if right else None,
    )  # fmt: skip


def test_signs_and_masks():
    pair = to_pair(_sample(2))
    assert pair.field0[5, 5].tolist() == [-5.0, 0.0]
    assert pair.field1[5, 5].tolist() == [5.0, 0.0]
    assert not pair.valid0[0].any()
    assert pair.valid0[1:].all()
    assert np.isfinite(pair.field0).all()
    assert not to_pair(_sample(2, right=False)).valid1.any()


def test_flow_supervises_the_first_frame():
    flow = np.full((40, 70, 2), 2.0, np.float32)
    flow[0, 0] = np.inf
    image = np.zeros((40, 70, 3), np.uint8)
    pair = to_pair(SimpleNamespace(name="x", frame1=image, frame2=image, flow=flow))
    assert pair.valid0.sum() == 40 * 70 - 1
    assert not pair.valid1.any()


def test_samples_without_truth_are_refused():
    sample = _sample(0)
    sample.disparity = None
    with pytest.raises(InputError, match="no ground truth"):
        to_pair(sample)


def test_every_sample_once_an_epoch_in_its_own_order():
    source = FileSource([_sample(n) for n in range(6)], 0, "cpu", STILL, workers=2)
    epochs = [source.batch(6 * epoch, 6, 32, 64).image0[:, 0, 0, 0].int().tolist() for epoch in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(6))
    assert epochs[0] != epochs[1]


def test_batches_depend_on_their_index_alone():
    samples = [_sample(n) for n in range(5)]
    first = FileSource(samples, 3, "cpu", workers=2)
    first.batch(0, 4, 32, 64)
    again = FileSource(samples, 3, "cpu", workers=1)
    for a, b in zip(first.batch(4, 4, 32, 64), again.batch(4, 4, 32, 64)):
        assert (a is None and b is None) or torch.equal(a, b)
    batch = first.batch(8, 2, 32, 64)
    assert batch.image0.shape == (2, 3, 32, 64)
    assert batch.image0.dtype == torch.float32
    assert batch.occluded0 is None


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_process_decodes_its_own_samples_only_and_each_once(count):
    opened = []

    class Counted(list):
        def __getitem__(self, index):
            opened.append(index)
            return super().__getitem__(index)

    samples = Counted(_sample(number % 100) for number in range(500))
    lane = Lane(1, 4)
    source = FileSource(samples, 0, "cpu", STILL, lane, workers=2)
    for own in range(5):
        source.batch(lane.slot(own) * count, count, 32, 64)
    source._pool.shutdown()
    assert len(opened) == len(set(opened)) == 5 * count + max(count, LEAST_AHEAD)


def test_text_without_a_path_is_explained():
    with pytest.raises(InputError, match="folder:"):
        open_samples("pairs")
    with pytest.raises(InputError, match="no samples"):
        FileSource([], 0, "cpu")
