"""What results say about where they were made."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import torch

from matchattention.data import provenance


def test_the_commit_is_the_checkouts(monkeypatch):
    monkeypatch.delenv("MATCHATTENTION_COMMIT", raising=False)
    root = Path(provenance.__file__).resolve().parents[2]
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    found = provenance.commit()
    if asked.returncode:
        assert found is None
    else:
        assert asked.stdout.startswith(found.removesuffix("+"))
        assert len(found.removesuffix("+")) >= 12


def test_a_copy_without_history_can_be_told_its_commit(monkeypatch):
    monkeypatch.setenv("MATCHATTENTION_COMMIT", "abc")
    assert provenance.commit() == "abc"


def test_outside_a_checkout_there_is_no_commit(monkeypatch, tmp_path):
    monkeypatch.delenv("MATCHATTENTION_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "a" / "b" / "provenance.py"))
    (tmp_path / "a").mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance.commit() is None


def test_versions_and_processor():
    assert provenance.version("numpy")
    assert provenance.version("no-such-package") is None
    assert provenance.processor()


def test_a_record_names_the_processor_and_a_gpu_only_where_one_was_used(monkeypatch):
    gpu = SimpleNamespace(name="GPU", total_memory=2**34, multi_processor_count=8)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    on_cpu, on_gpu = provenance.describe_environment(), provenance.describe_environment("cuda:1")
    assert {"date", "commit", "versions", "processor", "cores", "threads"} <= set(on_cpu)
    assert on_cpu["versions"]["torch"] == torch.__version__
    assert "gpu" not in on_cpu
    assert (on_gpu["device"], on_gpu["gpu"], on_gpu["gpu_memory_gib"]) == ("cuda", "GPU", 16.0)
