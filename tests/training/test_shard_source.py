"""Shards as a source: shuffled, each sample once an epoch over all processes, continued by number alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from matchattention.cli.main import main
from matchattention.data.shard_writer import write_shards
from matchattention.data.shards import ShardedStereo
from matchattention.training.lanes import Lane
from matchattention.training.shard_source import ShardSource


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("shards") / "out"
    dice = np.random.default_rng(0)
    samples = []
    for number in range(22):
        image = dice.integers(0, 256, (32, 64, 3), np.uint8)
        samples.append(ShardedStereo(str(number), image, image, np.zeros((32, 64), np.float32)))
    write_shards(samples, folder, per_shard=3)
    return str(folder)


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_processes_share_an_epoch_without_a_sample_twice(shards, count):
    sources = [ShardSource(shards, 5, "cpu", lane=Lane(rank, count)) for rank in range(count)]
    for epoch in (0, 1):
        seen = [place for source in sources for place in source.order(epoch)]
        assert sorted(seen) == [(shard, i) for shard in range(8) for i in range(3 if shard < 7 else 1)]
    assert sources[0].order(0) != sources[0].order(1)
    if count == 3:
        assert not set(s for s, _ in sources[0].order(0)) & set(s for s, _ in sources[1].order(0))


def test_requests_of_processes_and_micro_batches_take_every_sample_in_turn(shards):
    processes, parts, count = 2, 2, 3
    for rank in range(processes):
        source = ShardSource(shards, 5, "cpu", lane=Lane(rank, processes, parts))
        taken = [
            number
            for step in range(3)
            for part in range(parts)
            for number in source.numbers(((step * processes + rank) * parts + part) * count, count)
        ]
        assert taken == list(range(18))


def test_epochs_of_a_process_follow_one_another_however_long_they_are(shards):
    source = ShardSource(shards, 5, "cpu", lane=Lane(1, 3))  # two or three of eight shards, the last of one sample
    lengths = [len(source.order(epoch)) for epoch in range(9)]
    assert len(set(lengths)) > 1
    expected = [(epoch, place) for epoch, length in enumerate(lengths) for place in range(length)]
    assert [source.place(number) for number in range(sum(lengths))] == expected
    late = ShardSource(shards, 5, "cpu", lane=Lane(1, 3))
    assert late.place(sum(lengths[:8])) == (8, 0)
    late.load(sum(lengths[:8]), 32, 64)
    assert list(late._orders) == [8]  # what came before is counted, not made


def test_a_later_batch_is_the_same_whoever_asks_for_it(shards):
    source = ShardSource(shards, 5, "cpu")
    batches = [source.batch(4 * k, 4, 32, 64) for k in range(8)]  # more than an epoch
    again = ShardSource(shards, 5, "cpu").batch(24, 4, 32, 64)
    assert all(torch.equal(a, b) for a, b in zip(batches[6], again) if a is not None)
    assert not torch.equal(batches[0].image0, batches[1].image0)
    other = ShardSource(shards, 6, "cpu").batch(24, 4, 32, 64)
    assert not torch.equal(again.image0, other.image0)


def test_training_reads_shards(shards, tmp_path):
    command = ["train", "tiny-smoke", "--source", "cards", "--data", f"shards:{shards}", "--size", "32x64:2"]
    options = ["--device", "cpu", "--steps", "2", "--validation-pairs", "0", "--validate", f"shards:{shards}"]
    assert main([*command, *options, "--output", str(tmp_path / "run")]) == 0
