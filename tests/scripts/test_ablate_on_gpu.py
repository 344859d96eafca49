"""The order of the calls on a lent GPU, with a `python3` that only writes down what it is asked."""

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "ablate_on_gpu.sh"


def call(folder, seconds, says="", does=""):
    """Run the script in an empty folder; returns its output and the commands it gave."""
    (folder / "bin").mkdir(exist_ok=True)
    fake = folder / "bin" / "python3"
    fake.write_text(f'#!/bin/bash\necho "$@" >> {folder}/calls\necho "{says}"\n{does}\n')
    fake.chmod(0o755)
    (folder / "calls").unlink(missing_ok=True)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    words = ["bash", str(SCRIPT), str(folder / "out"), str(seconds)]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)
    calls = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return done.stdout, calls


def test_everything_in_order(tmp_path):
    output, calls = call(tmp_path, 500)
    assert output.rstrip().endswith("all done")
    assert all(line.startswith("-m matchattention ") for line in calls)
    assert [line.split()[2] for line in calls] == ["ablate"] * 2 + ["figure"] * 4 + ["ablate"] * 5
    assert "--table 6 --seeds 1,2" in calls[0]
    assert "--no-costs" not in calls[0]
    assert "--seeds 3,4,5" in calls[1]
    assert "--real" not in calls[0]
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "real_pairs.bin").write_bytes(b"")
    assert "--real local/real_pairs.bin" in call(tmp_path, 500)[1][0]


def test_it_goes_on_from_what_came_back(tmp_path):
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    for name in ("ablations-nvidia-h200.json", "figure-cascade-nvidia-h200.json"):
        (results / name).write_text("{}")
    out = tmp_path / "out"
    _, calls = call(tmp_path, 500, does=f"[ -e {out}/new.json ] || cp {out}/ablations-nvidia-h200.json {out}/new.json")
    assert (out / "new.json").read_text() == "{}"
    assert [path.name for path in out.iterdir()] == ["new.json"], "what has not changed stays where it is"
    assert [line.split()[3] for line in calls if "figure" in line] == ["operator-tokens", "size-scan", "self-positions"]


def test_a_figure_cut_short_is_measured_again(tmp_path):
    measures = 'case "$*" in *figure*) touch ${@: -1}/figure-$4-nvidia-h200.json;; esac; [ "$4" != size-scan ]'
    output, _ = call(tmp_path, 500, does=measures)
    assert "size-scan failed, going on" in output
    left = sorted(path.name for path in (tmp_path / "out").glob("figure-*"))
    assert left == [f"figure-{name}-nvidia-h200.json" for name in ("cascade", "operator-tokens", "self-positions")]


def test_it_ends_in_time(tmp_path):
    output, calls = call(tmp_path, 10)
    assert "time is up" in output
    assert calls == []
    output, calls = call(tmp_path, 500, says="written: x (not complete: run it again to go on)")
    assert "time is up" in output
    assert len(calls) == 1
