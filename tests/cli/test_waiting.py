"""Long work shows that it lives; quick work says nothing."""

import io
import time

from matchattention.cli.waiting import Waiting
from tests.cli.test_progress import Terminal


def wait_for(stream: io.StringIO, words: str) -> None:
    for _ in range(200):
        if words in stream.getvalue():
            return
        time.sleep(0.02)
    raise AssertionError(stream.getvalue())


def test_quick_work_is_silent() -> None:
    stream = io.StringIO()
    with Waiting("matching", stream) as waiting:
        waiting.at("block 1 of 26")
    assert stream.getvalue() == ""


def test_a_log_gets_a_line() -> None:
    stream = io.StringIO()
    with Waiting("matching", stream, patience=0.01) as waiting:
        waiting.at("block 1 of 26")
        wait_for(stream, "matching: block 1 of 26, 0 s\n")


def test_a_terminal_is_redrawn_and_left_clean(capsys) -> None:
    stream = Terminal()
    with Waiting("network", stream, patience=0.01) as waiting:
        wait_for(stream, "network, 0 s")
        waiting.say("eager 3.1 ms")
    assert stream.getvalue().endswith("\r\x1b[K")
    assert capsys.readouterr().out == "eager 3.1 ms\n"


def test_work_that_fails_ends_it() -> None:
    stream = io.StringIO()
    try:
        with Waiting("matching", stream, patience=0.01) as waiting:
            raise KeyError
    except KeyError:
        pass
    assert not waiting._thread.is_alive()
