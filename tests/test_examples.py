"""What README.md and the documentation show must work: Python is run, commands are parsed, the main ones are run.

The blocks of a page run in order and share their names, as a reader would type them. They find a pair (`left.png`,
`right.png`), its calibration (`calib.txt`, `camera.json`) and two frames (`frame1.png`, `frame2.png`) where they run.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from matchattention.cli.main import COMMANDS, _parser, main
from matchattention.examples import example
from matchattention.models.checkpoint import shipped
from matchattention.models.registry import list_models

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Python that is shown and not run, by page and a piece of its text, with the reason.
EXCUSED = {
    ("design.md", "class MatchNetwork(nn.Module):"): "an interface, not a program",
    ("design.md", "class Batch(NamedTuple):"): "an interface, not a program",
    ("serving.md", "InferenceServerClient"): "needs a server; tests/serve has the same client",
    ("evaluation.md", 'datasets.open("kitti2015"'): "needs a dataset that may not be shipped",
}
# Commands that are run, not only parsed: those a newcomer types first, on the pair that is there.
RUN = re.compile(r"matchattention (predict (left\.png right\.png|--example)(?!.*--(live|task|model))|models)\b.*")
LOADED = re.compile(r"""(?:\bload|Predictor)\(\s*["']([\w-]+)["']""")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line it begins at."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page; an indented fence (in a list) is moved to the margin."""
    found = []
    fence = re.compile(r"^([ \t]*)```[ \t]*(\w*)[^\n]*\n(.*?)^\1```[ \t]*$", re.MULTILINE | re.DOTALL)
    content = page.read_text(encoding="utf-8")
    for match in fence.finditer(content):
        text = "\n".join(line.removeprefix(match[1]) for line in match[3].splitlines())
        found.append(Block(match[2], text, content[: match.start()].count("\n") + 2))
    return found


def commands(page: Path) -> list[str]:
    """Every `matchattention …` line of a page's shell blocks, fenced or indented, comments and line ends joined."""
    lines = []
    for block in blocks(page):
        if block.language in ("bash", "sh", "shell", "console", ""):
            lines += block.text.replace("\\\n", " ").splitlines()
    outside = re.sub(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    outside = outside.replace("\\\n", " ")
    lines += [line.strip() for line in outside.splitlines() if line.startswith("    matchattention ")]
    stripped = (line.strip().removeprefix("$ ") for line in lines)
    return [line for line in stripped if line.startswith("matchattention ")]


def words(command: str) -> list[str]:
    return shlex.split(command, comments=True)[1:]


def lacking(text: str) -> str | None:
    """What an example needs and this machine or package does not have: a GPU, or the weights of a model."""
    if '"cuda"' in text and not torch.cuda.is_available():
        return "a GPU"
    names = (name for name in LOADED.findall(text) if name in list_models() and name not in shipped())
    return next((f"the weights of {name}, which do not ship" for name in names), None)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with what the examples read: the bundled pair at half its size, so that a CPU is quick."""
    files = example("donkey")
    left, right = (Image.open(path).convert("RGB").resize((304, 230)) for path in (files.left, files.right))
    for name, image in (("left.png", left), ("right.png", right), ("frame1.png", left), ("frame2.png", right)):
        image.save(tmp_path / name)
    camera = json.loads(files.camera.read_text())
    scaled = {key: value / 2 if key not in ("baseline", "doffs") else value for key, value in camera.items()}
    scaled |= {"width": 304, "height": 230}
    (tmp_path / "camera.json").write_text(json.dumps(scaled))
    matrix = f"[{scaled['fx']} 0 {scaled['cx']}; 0 {scaled['fx']} {scaled['cy']}; 0 0 1]"
    (tmp_path / "calib.txt").write_text(
        f"cam0={matrix}\ncam1={matrix}\ndoffs=0\nbaseline={1000 * scaled['baseline']}\nwidth=304\nheight=230\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cv2.VideoCapture", TwoFrames)
    return tmp_path


class TwoFrames:
    """A camera that shows the left or the right view twice and is then unplugged."""

    def __init__(self, number: int) -> None:
        view = Image.open(("left.png", "right.png")[number])
        self._frame = np.asarray(view)[..., ::-1]  # BGR, as OpenCV gives it
        self._left = 2

    def grab(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def retrieve(self) -> tuple[bool, np.ndarray]:
        return True, self._frame


def test_every_page_is_looked_at() -> None:
    names = {page.name for page in PAGES}
    assert {"README.md", "index.md", "tutorial.md", "cameras.md", "operator.md", "backends.md", "faq.md"} <= names
    assert sum(len(blocks(page)) for page in PAGES) > 25
    assert sum(len(commands(page)) for page in PAGES) > 25


def test_excuses_are_still_needed() -> None:
    texts = {(page.name, block.text) for page in PAGES for block in blocks(page) if block.language == "python"}
    for name, piece in EXCUSED:
        assert any(name == page and piece in text for page, text in texts), (name, piece)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples(page: Path, here: Path) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    missing: set[str] = set()
    ran = 0
    for block in blocks(page):
        excused = any(page.name == name and piece in block.text for name, piece in EXCUSED)
        if block.language not in ("python", "py") or excused:
            continue
        need = lacking(block.text)
        if need is not None:
            missing.add(need)
            continue
        try:
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), names)
            ran += 1
        except NameError:
            if not missing:  # else the name comes from a block that could not be run
                raise
    if missing:
        pytest.skip(f"{ran} blocks ran; others need {' and '.join(sorted(missing))}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist_with_these_options(page: Path, capsys) -> None:
    for command in commands(page):
        arguments = words(command)
        if "…" in command or arguments[0].startswith("-"):
            continue
        assert arguments[0] in COMMANDS, command
        try:
            _parser(arguments[0]).parse_args(arguments)
        except SystemExit:
            raise AssertionError(f"{page.name} shows `{command}`: {capsys.readouterr().err}") from None
        except ModuleNotFoundError as error:
            raise AssertionError(f"{page.name} shows `{command}`, which does not exist yet: {error}") from None


def first_commands() -> list[str]:
    shown = {command.split("  #")[0].strip() for page in PAGES for command in commands(page)}
    return sorted(command for command in shown if RUN.fullmatch(command))


@pytest.mark.parametrize("command", first_commands())
def test_first_commands_run(command: str, here: Path, capsys) -> None:
    if "predict" in command and "rt" not in shipped():
        pytest.skip("the weights of rt do not ship")
    before = set(here.iterdir())
    assert main(words(command)) == 0, capsys.readouterr().err
    made = set(here.iterdir()) - before
    if "--output" in command:
        folder = here / words(command)[words(command).index("--output") + 1]
        assert folder.parts[len(here.parts)] in {path.name for path in made}
        disparity = np.asarray(Image.open(folder / "disparity.png"))
        assert disparity.std() > 1  # a picture, not a plain
        assert str(folder.relative_to(here)) in capsys.readouterr().out
