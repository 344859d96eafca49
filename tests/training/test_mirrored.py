"""Mirror images of pairs: as true as the pairs, and every one of them comes once."""

import torch

from matchattention.training.lanes import Lane
from matchattention.training.mirrored import BATCHES, MirroredAgain, mirrored
from matchattention.training.sources import ShiftedCards


def test_a_mirrored_pair_is_a_pair():
    """Cards move by whole pixels: the match's colour is the pixel's own."""
    batch = mirrored(ShiftedCards(0).batch(0, 2, 32, 64))
    for image, other, field, hidden in (
        (batch.image0, batch.image1, batch.field0, batch.occluded0),
        (batch.image1, batch.image0, batch.field1, batch.occluded1),
    ):
        assert (field[..., 0].sign().unique() == (-1 if image is batch.image0 else 1)).all()
        column = (torch.arange(64) + field[..., 0].long()).clamp(0, 63)
        found = other.gather(3, column[:, None].expand_as(other))
        same = (found == image).all(1)
        assert same[~hidden].all()


def test_twice_mirrored_is_the_pair_itself():
    batch = ShiftedCards(3).batch(0, 2, 32, 64)
    for before, after in zip(batch, mirrored(mirrored(batch))):
        torch.testing.assert_close(before, after, rtol=0, atol=0)


class Numbered:
    """Pairs that carry their number in every pixel, and a count of how often each was made."""

    def __init__(self):
        self.made = []

    def batch(self, first, count, height, width):
        self.made += range(first, first + count)
        batch = ShiftedCards(0).batch(0, count, height, width)
        number = torch.arange(first, first + count, dtype=torch.float32).view(-1, 1, 1, 1)
        return batch._replace(image0=number.expand_as(batch.image0), image1=number.expand_as(batch.image1))


def test_every_pair_comes_twice_and_is_made_once():
    source = Numbered()
    again = MirroredAgain(source)
    seen = []
    for step in range(4 * BATCHES):
        batch = again.batch(step * 6, 6, 32, 64)
        assert len(batch.image0) == 6
        seen += batch.image0[:, 0, 0, 0].int().tolist()
    assert sorted(source.made) == list(range(2 * BATCHES * 6))
    assert sorted(seen) == sorted(2 * list(range(2 * BATCHES * 6)))


def test_processes_render_each_pair_once_between_them():
    made, seen = [], []
    for rank in range(4):
        source, lane = Numbered(), Lane(rank, 4)
        again = MirroredAgain(source, lane)
        for own in range(2 * BATCHES):
            seen += again.batch(lane.slot(own) * 3, 3, 32, 64).image0[:, 0, 0, 0].int().tolist()
        made += source.made
    assert sorted(made) == list(range(4 * BATCHES * 3))
    assert sorted(seen) == sorted(2 * made)


def test_a_training_that_continues_gets_the_same_batch():
    whole, continued = MirroredAgain(ShiftedCards(1)), MirroredAgain(ShiftedCards(1))
    for step in range(BATCHES + 3):
        expected = whole.batch(step * 4, 4, 32, 64)
    found = continued.batch((BATCHES + 2) * 4, 4, 32, 64)
    for mine, theirs in zip(expected, found):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
