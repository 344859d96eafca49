"""Requests are dealt to processes: every one to exactly one of them, a step's side by side."""

import pytest

from matchattention.training.lanes import Lane


@pytest.mark.parametrize(("processes", "parts"), [(1, 1), (1, 3), (3, 1), (4, 2)])
def test_every_request_belongs_to_one_process(processes, parts):
    lanes = [Lane(rank, processes, parts) for rank in range(processes)]
    slots = [[lane.slot(own) for own in range(5 * parts)] for lane in lanes]
    assert sorted(slot for own in slots for slot in own) == list(range(5 * processes * parts))
    for lane, own in zip(lanes, slots):
        assert [lane.own(slot) for slot in own] == list(range(5 * parts))
        assert own[:parts] == list(range(lane.rank * parts, (lane.rank + 1) * parts))
