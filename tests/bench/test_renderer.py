"""The renderer's rates from the command line; measuring itself needs a GPU."""

import pytest

from matchattention.bench import renderer
from matchattention.cli.main import main


@pytest.mark.parametrize(("asked", "seconds"), [([], 8.0), (["--seconds", "2"], 2.0)])
def test_the_renderer_is_timed_for_as_long_as_asked(monkeypatch, tmp_path, asked, seconds):
    given = []
    monkeypatch.setattr(renderer, "bench_renderer", lambda device, seconds, **rest: given.append(seconds) or {})
    assert main(["bench", "renderer", "--device", "cpu", "--output", str(tmp_path), *asked]) == 0
    assert given == [seconds]
