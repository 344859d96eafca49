"""When pairs that wait are matched."""

from __future__ import annotations

from matchattention.serve.batching import Batcher
from tests.serve.conftest import Network, pair

HOURS = 7200.0  # nobody waits that long: a batch that is full does not wait for more


def test_a_full_batch_does_not_wait_for_more(network: Network) -> None:
    batcher = Batcher(network, largest_batch=2, wait_s=HOURS)
    futures = batcher.submit([pair(seed) for seed in range(4)])
    for future in futures:
        future.result(timeout=60)
    batcher.close()
    assert network.batches == [2, 2]


def test_large_pairs_fill_a_batch_sooner(network: Network) -> None:
    batcher = Batcher(network, largest_batch=4, wait_s=HOURS, largest_batch_pixels=32 * 48)
    for future in batcher.submit([pair(0), pair(1)]):
        future.result(timeout=60)
    batcher.close()
    assert network.batches == [1, 1]


def test_what_waits_is_matched_when_the_server_closes(network: Network) -> None:
    batcher = Batcher(network, largest_batch=4, wait_s=HOURS)
    (future,) = batcher.submit([pair(0)])
    batcher.close()
    assert future.result(timeout=0).disparity.shape == (32, 48)
