"""States on disk: whole or passed over with a sentence, never opened when they could run code."""

from __future__ import annotations

import hashlib
import pickle

import pytest
import torch

from matchattention.errors import InputError
from matchattention.training.optimizer import OptimizerConfig, Updater
from matchattention.training.state import (
    _MARK,
    PREVIOUS_FILE,
    STATE_FILE,
    Counters,
    load_state,
    read_state,
    state_content,
    write_state,
)
from tests.training.networks import TinyNetwork


@pytest.fixture
def run(tmp_path):
    """A folder with the states of steps 1 and 2."""
    torch.manual_seed(0)
    model = TinyNetwork()
    updater = Updater(model, OptimizerConfig())
    for steps in (1, 2):
        with torch.no_grad():
            next(model.parameters()).fill_(steps)
        write_state(tmp_path, state_content(model, updater, Counters(steps=steps), {}))
    return tmp_path


def _restored(folder, texts=None):
    model = TinyNetwork()
    updater = Updater(model, OptimizerConfig())
    texts = [] if texts is None else texts
    counters = load_state(folder, model, updater, texts.append)
    return counters.steps, next(model.parameters()).flatten()[0].item()


def test_the_newest_is_used_and_the_one_before_is_kept(run):
    texts = []
    assert _restored(run, texts) == (2, 2.0)
    assert texts == []
    assert sorted(path.name for path in run.iterdir()) == [PREVIOUS_FILE, STATE_FILE]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "gone"])
def test_a_damaged_state_is_passed_over_with_a_sentence(run, damage):
    path = run / STATE_FILE
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    texts = []
    assert _restored(run, texts) == (1, 1.0)
    if damage != "gone":
        assert len(texts) == 1
        assert f"continuing with {run / PREVIOUS_FILE}, saved at step 1" in texts[0]


def test_two_damaged_states_end_in_one_sentence(run):
    for name in (STATE_FILE, PREVIOUS_FILE):
        (run / name).write_bytes(b"nonsense")
    with pytest.raises(InputError, match="--fresh"):
        read_state(run, print)


class _Evil:
    def __reduce__(self):
        return (print, ("owned",))


def test_a_state_that_would_run_code_is_refused_in_our_words(run, capsys):
    torch.save({"counters": _Evil()}, run / STATE_FILE)
    content = (run / STATE_FILE).read_bytes()
    (run / STATE_FILE).write_bytes(content + _MARK + hashlib.sha256(content).digest())
    with pytest.raises(InputError, match="was not opened") as caught:
        read_state(run, print)
    assert "weights_only" not in str(caught.value)
    assert "owned" not in capsys.readouterr().out
    raw = pickle.dumps(_Evil())
    (run / STATE_FILE).write_bytes(raw + _MARK + hashlib.sha256(raw).digest())
    with pytest.raises(InputError, match="was not opened"):
        read_state(run, print)
    assert "owned" not in capsys.readouterr().out
