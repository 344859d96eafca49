"""Every reader answers mutated files with a sentence: some fifty kinds of files, a fixed seed, a bounded memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("h5py")
pytest.importorskip("OpenEXR")
pytest.importorskip("cv2")
from tests.data.fuzzing import kinds

MUTATIONS = int(os.environ.get("MATCHATTENTION_MUTATIONS", "150"))  # of each kind; 400 in `make fuzz`
MOST_MEMORY = 400  # MiB above what the imports take: the largest file of the table is a few kB


@pytest.fixture(scope="module")
def outcome():
    """What the readers did, measured in a process of its own so that a crash or a burst of memory is theirs."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.data.fuzzing", str(MUTATIONS)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", [kind.name for kind in kinds()])
def test_mutated_files_are_answered_in_sentences(outcome, name):
    result = outcome["kinds"][name]
    assert result["foreign"] == {}, result["examples"]
    assert result["refused"] > 0  # the mutations do harm


def test_no_mutated_file_takes_much_memory(outcome):
    assert outcome["after"] - outcome["before"] < MOST_MEMORY
