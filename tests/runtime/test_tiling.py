"""A field to start from keeps its meaning in smaller pieces."""

import torch

from matchattention.runtime.memory import MemoryPlan
from matchattention.runtime.tiling import match_by_plan, strips


def starts_of(plan: MemoryPlan) -> list[torch.Tensor]:
    """The starts that the network is given for a pair of 24x32 px and a start of (-8, 2) px everywhere."""
    seen = []

    def match(image0, image1, initial):
        assert initial.shape[1:3] == image0.shape[-2:]
        seen.append(initial)
        return initial

    image = torch.zeros(1, 3, 24, 32)
    start = torch.tensor([-8.0, 2.0]).expand(2, 24, 32, 2)
    field = match_by_plan(match, plan, image, image, start)
    assert torch.equal(field, start)
    return seen


def test_the_start_of_a_halved_pair_is_halved():
    (seen,) = starts_of(MemoryPlan(halvings=2))
    assert torch.equal(seen, torch.tensor([-2.0, 0.5]).expand(2, 6, 8, 2))


def test_a_strip_starts_from_its_own_rows():
    seen = starts_of(MemoryPlan(strip_rows=8))
    assert len(seen) == 3
    assert all(torch.equal(start[0, 0, 0], torch.tensor([-8.0, 2.0])) for start in seen)


def test_strips_see_rows_above_and_below_and_keep_their_own():
    found = list(strips(10, 4, overlap=2))
    assert [(strip.read.start, strip.read.stop) for strip in found] == [(0, 5), (1, 9), (5, 10)]
    assert [(strip.kept.start, strip.kept.stop) for strip in found] == [(0, 3), (3, 7), (7, 10)]
