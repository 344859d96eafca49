"""One reading of sizes for every command."""

import pytest

from matchattention.cli.sizes import parse_size
from matchattention.errors import InputError


@pytest.mark.parametrize(("text", "size"), [("512x768", (512, 768)), (" 64 X 96", (64, 96)), ("32×8192", (32, 8192))])
def test_height_comes_first(text: str, size: tuple[int, int]) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["512", "512x", "axb", "512x768x3", "-64x96", ""])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--cost-size is HEIGHTxWIDTH"):
        parse_size(text, "--cost-size")


@pytest.mark.parametrize("text", ["31x64", "64x31", "8193x64", "64x8193"])
def test_sizes_that_nothing_takes_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="32 to 8192 px a side"):
        parse_size(text)
