"""An archive through Ray: every pair once, bad ones listed, a killed worker costs nothing."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from matchattention.archive.manifest import read_manifest
from matchattention.archive.results import Store, begin, encode_confidence, read_rows
from matchattention.cli.main import main
from matchattention.data.png import read_png16
from matchattention.errors import InputError
from matchattention.inference.predictor import Predictor
from matchattention.models import checkpoint, create_model
from matchattention.training.presets import TINY

pytest.importorskip("ray")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")  # which `pyarrow` alone does not bring
PAIRS, PER_SHARD = 200, 10
BAD = {17, 120}


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """200 pairs of two sizes with a manifest, two of them bad, and a tiny network."""
    root = tmp_path_factory.mktemp("archive")
    dice = np.random.default_rng(0)
    lines = ["left,right,name"]
    (root / "images").mkdir()
    for number in range(PAIRS):
        height, width = ((32, 64), (48, 64))[number % 2]
        wall = dice.integers(0, 256, (height, width + 4, 3), np.uint8)
        for view, image in (("left", wall[:, :width]), ("right", wall[:, 4:])):
            path = root / "images" / f"{number:03d}_{view}.png"
            Image.fromarray(image).save(path)
            if number in BAD and view == "right":
                path.write_bytes(b"broken")
        lines.append(f"images/{number:03d}_left.png,images/{number:03d}_right.png,pair{number:03d}")
    (root / "pairs.csv").write_text("\n".join(lines) + "\n")
    torch.manual_seed(0)
    network = create_model(TINY)
    checkpoint.save(network, root / "tiny.safetensors", network.config)
    return root


def _command(archive: Path, output: Path, *more: str) -> list[str]:
    options = ["--model", str(archive / "tiny.safetensors"), "--device", "cpu", "--no-check", "--workers", "2"]
    return ["predict", str(archive / "pairs.csv"), "--engine", "ray", "--output", str(output),
            "--pairs-per-shard", str(PER_SHARD), *options, *more]  # fmt: skip


def _kill_a_worker_when(condition, killed: list[int]) -> None:
    """kill -9 one of Ray's workers of this test's own user that hold our predictor."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not killed:
        if condition():
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    title = (folder / "cmdline").read_bytes()
                    environment = (folder / "environ").read_bytes()
                except OSError:
                    continue
                if (
                    b"ray::" in title
                    and b"ShardPredictor" in title
                    and f"KILLTEST={os.getpid()}".encode() in environment
                ):
                    os.kill(int(folder.name), signal.SIGKILL)
                    killed.append(int(folder.name))
                    return
        time.sleep(0.01)


def test_nothing_is_lost_or_doubled_when_a_worker_is_killed(archive, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KILLTEST", str(os.getpid()))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    output = tmp_path / "out"
    killed: list[int] = []
    watcher = threading.Thread(
        target=_kill_a_worker_when, args=(lambda: len(list(output.glob("part-*"))) >= 2, killed), daemon=True
    )
    watcher.start()
    assert main(_command(archive, output)) == 0
    watcher.join(1)
    assert killed, "no worker was found to kill"
    store = Store(str(output))
    rows = read_rows(store, range(PAIRS // PER_SHARD), ["name", "error", "field", "height", "width"])
    assert [row["name"] for row in rows] == [f"pair{number:03d}" for number in range(PAIRS)]
    assert {number for number, row in enumerate(rows) if row["error"]} == BAD
    assert len(list(output.glob("part-*"))) == PAIRS // PER_SHARD
    summary = json.loads((output / "summary.json").read_text())
    assert (summary["pairs"], summary["bad"], summary["already_there"]) == (PAIRS, len(BAD), 0)
    listed = (output / "bad_pairs.csv").read_text()
    assert "pair017" in listed
    assert "pair120" in listed

    # What is stored is what the predictor finds.
    left, right = (str(archive / "images" / f"004_{view}.png") for view in ("left", "right"))
    expected = Predictor(str(archive / "tiny.safetensors"), "cpu", check=False)(left, right).disparity
    path = tmp_path / "field.png"
    path.write_bytes(rows[4]["field"])
    assert np.abs(read_png16(path) / 256 - np.clip(expected, 1 / 256, 65535 / 256)).max() < 0.05

    # A lost shard is made again, the others are not touched; other settings are refused.
    capsys.readouterr()
    times = {path.name: path.stat().st_mtime_ns for path in output.glob("part-*")}
    (output / "part-000007.parquet").unlink()
    assert main(_command(archive, output)) == 0
    assert f"{PAIRS - PER_SHARD} were there" in capsys.readouterr().out
    changed = {path.name for path in output.glob("part-*") if path.stat().st_mtime_ns != times[path.name]}
    assert changed == {"part-000007.parquet"}
    assert main(_command(archive, output, "--format", "pfm")) == 2
    assert "choose another --output" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["folder", "memory"])
def test_overwriting_starts_from_nothing_and_spares_strangers(tmp_path, place):
    pytest.importorskip("fsspec")
    store = Store(str(tmp_path / "out") if place == "folder" else f"memory://{tmp_path.name}/out")
    for name in ("part-000000.parquet", "part-00000-of-somebody.parquet", "notes.txt"):
        store.write(name, b"old")
    with pytest.raises(InputError, match=r"part-000000\.parquet and no archive\.json"):
        begin(store, {"fingerprint": "a"})
    assert store.read("part-000000.parquet") == b"old"
    begin(store, {"fingerprint": "a"}, overwrite=True)
    assert store.names() == {"archive.json", "part-00000-of-somebody.parquet", "notes.txt"}
    store.write("part-000000.parquet", b"new")
    begin(store, {"fingerprint": "a"})
    assert store.read("part-000000.parquet") == b"new"
    with pytest.raises(InputError, match="other options"):
        begin(store, {"fingerprint": "b"})
    begin(store, {"fingerprint": "b"}, overwrite=True)
    assert store.read("part-000000.parquet") is None


def test_manifests_of_every_kind(archive, tmp_path):
    from matchattention.data.shard_writer import write_shards
    from matchattention.data.shards import ShardedStereo

    rows = read_manifest([str(archive / "pairs.csv")])
    assert rows[3].left == str(archive / "images" / "003_left.png")
    table = pyarrow.table({"left": ["s3://b/l.png", "x/l.png"], "right": ["s3://b/r.png", "x/r.png"]})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    (tmp_path / "m.parquet").write_bytes(buffer.getvalue())
    found = read_manifest([str(tmp_path / "m.parquet")])
    assert [entry.left for entry in found] == ["s3://b/l.png", f"{tmp_path}/x/l.png"]
    assert len({entry.name for entry in found}) == 2
    image = np.zeros((8, 8, 3), np.uint8)
    write_shards([ShardedStereo("a", image, image)] * 3, tmp_path / "shards", per_shard=2)
    assert [entry.number for entry in read_manifest([f"shards:{tmp_path / 'shards'}"])] == [0, 1, 0]
    folder = read_manifest([str(archive / "images")])
    assert len(folder) == PAIRS


def test_a_worker_that_cannot_start_is_one_sentence(archive, tmp_path, monkeypatch, capsys):
    """Ray puts the worker's stack into the text of its error."""
    import ray.data

    def rows():
        cause = InputError("There is no rt.safetensors here.")
        raise ray.exceptions.RayTaskError("start", "a\nlong\nstack", cause).make_dual_exception_instance()

    dataset = SimpleNamespace(map_batches=lambda *_, **__: SimpleNamespace(iter_rows=rows))
    monkeypatch.setattr(ray.data, "from_items", lambda *_, **__: dataset)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2})
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert main(_command(archive, tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert said.endswith("A worker could not start: There is no rt.safetensors here.\n")
    assert "stack" not in said


def test_workers_of_a_cluster_need_not_stand_where_the_user_stands(archive, tmp_path, monkeypatch):
    given = {}

    def predict_archive(entries, options, progress):
        given.update(entries=entries, options=options)
        return dict.fromkeys(("predicted", "pairs", "shards", "already_there", "bad"), 0)

    monkeypatch.setattr("matchattention.archive.engine.predict_archive", predict_archive)
    monkeypatch.chdir(archive)
    for inputs in (["pairs.csv"], ["images"]):
        assert main(["predict", *inputs, "--engine", "ray", "--output", "out", "--model", "tiny.safetensors"]) == 0
        entry = next(entry for entry in given["entries"] if "/003_left" in entry.left)
        assert [entry.left, entry.right] == [str(archive / "images" / f"003_{view}.png") for view in ("left", "right")]
        options = given["options"]
        assert (options.output, options.model) == (str(archive / "out"), str(archive / "tiny.safetensors"))


@pytest.mark.parametrize(
    ("content", "message"),
    [("left,right\n", "lists no pairs"), ("a.png\n", "a left and a right"), ("a,b,n\nc,d,n\n", "called 'n'")],
)
def test_bad_manifests_are_one_sentence(tmp_path, content, message):
    (tmp_path / "m.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_manifest([str(tmp_path / "m.csv")])
    with pytest.raises(InputError, match="does not exist"):
        read_manifest([str(tmp_path / "missing.csv")])


def test_confidence_is_kept_in_255_steps():
    stored = np.asarray(Image.open(io.BytesIO(encode_confidence(np.array([[0.0, 0.5, 1.0]], np.float32)))))
    assert stored.tolist() == [[0, 128, 255]]
