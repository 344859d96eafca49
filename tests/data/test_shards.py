"""Shards keep every bit, say what is wrong with them, and are read in any order from any address."""

from __future__ import annotations

import http.server
import json
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from matchattention.cli.main import main
from matchattention.data.formats import write_pfm
from matchattention.data.shard_writer import write_shards
from matchattention.data.shards import INDEX, ShardedFlow, ShardedSamples, ShardedStereo, fetch, read_shard_list
from matchattention.errors import InputError

DICE = np.random.default_rng(0)


def _stereo(name: str) -> ShardedStereo:
    left, right = DICE.integers(0, 256, (2, 12, 16, 3), np.uint8)
    disparity, behind = DICE.uniform(0, 300, (2, 12, 16)).astype(np.float32)
    disparity[0, 0], disparity[0, 1] = np.inf, np.float32(1e-7)
    return ShardedStereo(name, left, right, disparity, behind, DICE.random((12, 16)) > 0.5)


def _same(one, other) -> None:
    assert one.name == other.name
    for name in ("left", "right", "disparity", "disparity_right", "non_occluded", "frame1", "frame2", "flow"):
        if hasattr(one, name):
            a, b = getattr(one, name), getattr(other, name)
            assert (a is None) == (b is None), name
            assert a is None or (a.dtype == b.dtype and np.array_equal(a, b)), name


@pytest.mark.parametrize("encoding", ["png", "npy.xz"])
def test_every_bit_survives(tmp_path, encoding):
    samples = [_stereo(f"s{number}") for number in range(5)]
    frames = DICE.integers(0, 256, (2, 8, 10, 3), np.uint8)
    samples.append(ShardedFlow("motion", *frames, DICE.normal(size=(8, 10, 2)).astype(np.float32)))
    write_shards(samples, tmp_path / "out", per_shard=2, encoding=encoding)
    found = ShardedSamples(str(tmp_path / "out"))
    assert read_shard_list(str(tmp_path / "out")).samples == (2, 2, 2)
    for number in (5, 0, 3, 1, 4, 2):
        _same(samples[number], found[number])
    with pytest.raises(IndexError):
        found[6]


def _folder(root: Path, count: int) -> None:
    for number in range(count):
        folder = root / f"scene{number}"
        folder.mkdir(parents=True)
        left = Image.fromarray(DICE.integers(0, 256, (12, 16, 3), np.uint8))
        left.save(folder / "im0.png")
        left.save(folder / "im1.png")
        write_pfm(folder / "disp0GT.pfm", DICE.uniform(0, 9, (12, 16)).astype(np.float32))


def test_the_command_keeps_image_files_and_resumes(tmp_path, capsys):
    _folder(tmp_path / "pairs", 5)
    command = ["shard", "folder", str(tmp_path / "pairs"), "--output", str(tmp_path / "out"), "--pairs-per-shard", "2"]
    assert main(command) == 0
    assert "5 pairs in 3 shards" in capsys.readouterr().out
    original = (tmp_path / "pairs" / "scene0" / "im0.png").read_bytes()
    assert original in (tmp_path / "out" / "000000.tar").read_bytes()
    assert main(command) == 2
    assert "holds shards already" in capsys.readouterr().err
    # A run that was cut off has no index and lacks shards; those it has are kept.
    (tmp_path / "out" / INDEX).unlink()
    (tmp_path / "out" / "000001.tar").unlink()
    kept = (tmp_path / "out" / "000000.tar").stat().st_mtime_ns
    assert main(command) == 0
    assert (tmp_path / "out" / "000000.tar").stat().st_mtime_ns == kept
    assert len(ShardedSamples(str(tmp_path / "out"))) == 5
    assert len(ShardedSamples(str(tmp_path / "out" / "000002.tar"))) == 1


def test_what_a_broken_off_run_left_is_kept_only_if_it_is_the_same(tmp_path):
    samples, others = [_stereo(f"s{n}") for n in range(4)], [_stereo(f"t{n}") for n in range(4)]
    out = tmp_path / "out"
    write_shards(others, out, per_shard=2)
    (out / INDEX).unlink()
    seen: list[str] = []
    write_shards(samples, out, per_shard=2, progress=seen.append)  # another dataset of the same size
    _same(ShardedSamples(str(out))[3], samples[3])
    (out / INDEX).unlink()
    (out / "000001.tar").write_bytes((out / "000001.tar").read_bytes()[:900])  # a disk that was full
    kept = (out / "000000.tar").stat().st_mtime_ns
    write_shards(samples, out, per_shard=2, progress=seen.append)
    assert (out / "000000.tar").stat().st_mtime_ns == kept
    _same(ShardedSamples(str(out))[3], samples[3])
    assert seen == 2 * [sample.name for sample in samples]
    (out / INDEX).unlink()
    write_shards(samples, out, per_shard=2, encoding="npy.xz")
    assert b".left.npy.xz" in (out / "000000.tar").read_bytes()


@pytest.mark.parametrize("address", ["s3://bucket/shards", "s3://bucket/shards/000000.tar"])
def test_an_address_without_its_packages_names_the_extra(address, monkeypatch):
    import fsspec

    def missing(*arguments, **options):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "open", missing)
    with pytest.raises(InputError, match=r"Install s3fs.*pip install 'matchattention\[remote\]'"):
        read_shard_list(address)


def test_shards_are_fetched_over_http(tmp_path):
    samples = [_stereo(f"s{number}") for number in range(3)]
    write_shards(samples, tmp_path / "out", per_shard=2)
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "out"))
    handler.log_message = lambda *a: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            found = ShardedSamples(address)
            for number in (2, 0, 1):
                _same(samples[number], found[number])
            copies = [found._cache.get(0).path, found._cache.get(1).path]
            found._cache.close()
            assert not any(copy.exists() for copy in copies)
            with pytest.raises(InputError, match="could not be fetched"):
                fetch(f"{address}/missing.tar")
        finally:
            server.shutdown()


def test_damage_is_one_sentence(tmp_path):
    write_shards([_stereo("a"), _stereo("b")], tmp_path / "out", encoding="npy.xz")
    path = tmp_path / "out" / "000000.tar"
    content = path.read_bytes()
    dice = np.random.default_rng(1)
    noticed = 0
    for _ in range(60):
        changed = bytearray(content)
        for place in dice.integers(0, len(content), 4):
            changed[place] = int(dice.integers(0, 256))
        path.write_bytes(changed[: int(dice.integers(1, len(content)))] if dice.random() < 0.3 else changed)
        try:
            samples = ShardedSamples(str(path))
            assert len([samples[number] for number in range(len(samples))]) == len(samples)
        except InputError:
            noticed += 1
    assert noticed > 20
    for index in ("{", "[]", json.dumps({"format": "other"}), json.dumps({"format": "matchattention-shards-1"})):
        (tmp_path / "out" / INDEX).write_text(index)
        with pytest.raises(InputError, match="cannot be read"):
            read_shard_list(str(tmp_path / "out"))
    with pytest.raises(InputError, match="matchattention shard DATASET"):
        read_shard_list(str(tmp_path / "nowhere"))
