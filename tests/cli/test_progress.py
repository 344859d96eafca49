"""The progress bar redraws in a terminal and writes lines elsewhere."""

import io

from matchattention.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_in_a_log() -> None:
    stream = io.StringIO()
    progress = Progress(2, "pair", stream)
    progress.step("first")
    progress.step("second", "already there", skipped=True)
    progress.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("[##########..........] 1/2 first")
    assert "s left" in lines[0]
    assert lines[1].startswith("[####################] 2/2 second: already there")


def test_one_line_in_a_terminal() -> None:
    stream = Terminal()
    progress = Progress(None, "frame", stream)
    progress.step("a")
    progress.step("b")
    progress.close()
    assert stream.getvalue().count("\n") == 1
    assert "frame 2 b" in stream.getvalue()
