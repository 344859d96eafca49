"""Pairs are found the way people name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from matchattention.errors import InputError
from matchattention.inference.sources import find_pairs, is_one_pair


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


def found(*arguments: str, root: Path, side_by_side: bool = False) -> list[tuple[str, str, str | None]]:
    return [
        (
            pair.name,
            str(pair.left.relative_to(root)),
            None if pair.right is None else str(pair.right.relative_to(root)),
        )
        for pair in find_pairs(*arguments, side_by_side=side_by_side)
    ]


def test_two_files(tmp_path) -> None:
    assert found(str(tmp_path / "a.png"), str(tmp_path / "b.png"), root=tmp_path) == [("a", "a.png", "b.png")]


def test_two_folders_pair_by_name(tmp_path) -> None:
    touch(tmp_path, "l/000_10.png", "l/001_10.png", "r/000_10.png", "r/001_10.png", "r/002_10.png", "l/notes.txt")
    assert found(str(tmp_path / "l"), str(tmp_path / "r"), root=tmp_path) == [
        ("000_10", "l/000_10.png", "r/000_10.png"),
        ("001_10", "l/001_10.png", "r/001_10.png"),
    ]


def test_two_folders_pair_by_name_apart_from_left_and_right(tmp_path) -> None:
    touch(tmp_path, "l/b_left.png", "l/a_left.png", "r/a_right.png", "r/b_right.png")
    assert [pair[1:] for pair in found(str(tmp_path / "l"), str(tmp_path / "r"), root=tmp_path)] == [
        ("l/a_left.png", "r/a_right.png"),
        ("l/b_left.png", "r/b_right.png"),
    ]


def test_two_folders_pair_in_order_when_names_differ(tmp_path) -> None:
    touch(tmp_path, "l/x1.png", "l/x2.png", "r/y1.png", "r/y2.png")
    assert [pair[1:] for pair in found(str(tmp_path / "l"), str(tmp_path / "r"), root=tmp_path)] == [
        ("l/x1.png", "r/y1.png"),
        ("l/x2.png", "r/y2.png"),
    ]
    touch(tmp_path, "r/y3.png")
    with pytest.raises(InputError, match="2 left and 3 right"):
        find_pairs(str(tmp_path / "l"), str(tmp_path / "r"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(
            ["Art/im0.png", "Art/im1.png", "Art/disp0.png", "Dolls/im0.png", "Dolls/im1.png"],
            [("Art", "Art/im0.png", "Art/im1.png"), ("Dolls", "Dolls/im0.png", "Dolls/im1.png")],
            id="middlebury",
        ),
        pytest.param(
            ["image_2/000_10.png", "image_3/000_10.png", "image_2/001_10.png", "image_3/001_10.png"],
            [
                ("000_10", "image_2/000_10.png", "image_3/000_10.png"),
                ("001_10", "image_2/001_10.png", "image_3/001_10.png"),
            ],
            id="kitti",
        ),
        pytest.param(["left/a.jpg", "right/a.jpg"], [("a", "left/a.jpg", "right/a.jpg")], id="folders-of-views"),
        pytest.param(
            ["desk_left.png", "desk_right.png", "other.png"],
            [("desk_left", "desk_left.png", "desk_right.png")],
            id="suffixes",
        ),
        pytest.param(["shot_L.png", "shot_R.png"], [("shot_L", "shot_L.png", "shot_R.png")], id="letters"),
        pytest.param(
            ["L/col_1.png", "R/col_1.png", "L/col_2.png", "R/col_2.png"],
            [("col_1", "L/col_1.png", "R/col_1.png"), ("col_2", "L/col_2.png", "R/col_2.png")],
            id="folders-of-letters",
        ),
        pytest.param(
            ["left/x_0.png", "left/x_1.png", "right/x_0.png", "right/x_1.png"],
            [("x_0", "left/x_0.png", "right/x_0.png"), ("x_1", "left/x_1.png", "right/x_1.png")],
            id="moments-are-no-views",
        ),
        pytest.param(
            ["a/frame1.png", "a/frame2.png", "a/frame10.png", "a/frame20.png"],
            [("a", "a/frame1.png", "a/frame2.png")],
            id="a-number-is-one-word",
        ),
        pytest.param(
            ["Left/Left_1.png", "Right/Right_1.png"],
            [("Left_1", "Left/Left_1.png", "Right/Right_1.png")],
            id="capitals",
        ),
    ],
)
def test_scenes(tmp_path, files: list[str], expected: list) -> None:
    touch(tmp_path, *files)
    assert found(str(tmp_path), root=tmp_path) == expected


def test_lists(tmp_path) -> None:
    touch(tmp_path, "a 1.png", "b.png")
    (tmp_path / "pairs.txt").write_text("# left right\n\nl/0.png r/0.png\nl/1.png   r/1.png\n")
    assert [pair[1:] for pair in found(str(tmp_path / "pairs.txt"), root=tmp_path)] == [
        ("l/0.png", "r/0.png"),
        ("l/1.png", "r/1.png"),
    ]
    (tmp_path / "pairs.csv").write_text('"a 1.png",b.png\n')
    assert [pair[1:] for pair in found(str(tmp_path / "pairs.csv"), root=tmp_path)] == [("a 1.png", "b.png")]
    (tmp_path / "bad.txt").write_text("l.png r.png\nonly_one.png\n")
    with pytest.raises(InputError, match="line 2"):
        find_pairs(str(tmp_path / "bad.txt"))
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(InputError, match="lists no pairs"):
        find_pairs(str(tmp_path / "none.txt"))


def test_side_by_side(tmp_path) -> None:
    touch(tmp_path, "a.png", "b.png")
    assert found(str(tmp_path), root=tmp_path, side_by_side=True) == [("a", "a.png", None), ("b", "b.png", None)]
    with pytest.raises(InputError, match="give one"):
        find_pairs("a.png", "b.png", side_by_side=True)


def test_names_are_unique(tmp_path) -> None:
    touch(tmp_path, "x/left/0.png", "x/right/0.png", "y/left/0.png", "y/right/0.png")
    assert [pair[0] for pair in found(str(tmp_path), root=tmp_path)] == ["x_left_0", "y_left_0"]


def test_one_or_many(tmp_path) -> None:
    touch(tmp_path, "a.png")
    folder, file = str(tmp_path), str(tmp_path / "a.png")
    assert is_one_pair(file, file, False)
    assert is_one_pair(file, None, True)
    assert not is_one_pair(folder, None, False)
    assert not is_one_pair(folder, None, True)
    assert not is_one_pair(folder, folder, False)
    assert not is_one_pair(str(tmp_path / "*.png"), str(tmp_path / "*.png"), False)


def test_frames_sort_by_number_hidden_files_stay_out_and_a_header_is_no_pair(tmp_path) -> None:
    for view in ("left", "right"):
        (tmp_path / view).mkdir()
        for name in ("2.png", "10.png", ".3.png"):
            (tmp_path / view / name).write_bytes(b"")
    hidden = tmp_path / ".left.partial-1-x" / "left"
    hidden.mkdir(parents=True)
    pairs = find_pairs(str(tmp_path / "left"), str(tmp_path / "right"))
    assert [pair.left.name for pair in pairs] == ["2.png", "10.png"]
    assert [pair.left.name for pair in find_pairs(str(tmp_path))] == ["2.png", "10.png"]
    (tmp_path / "pairs.csv").write_text("left,right\nleft/2.png,right/2.png\n")
    assert len(find_pairs(str(tmp_path / "pairs.csv"))) == 1


def test_frame1_of_many_keeps_its_name(tmp_path) -> None:
    touch(tmp_path, *(f"{view}/frame{index}.png" for view in "lr" for index in (1, 2, 10)))
    names = [pair[0] for pair in found(str(tmp_path / "l"), str(tmp_path / "r"), root=tmp_path)]
    assert names == ["frame1", "frame2", "frame10"]
    assert [pair[0] for pair in found(str(tmp_path), root=tmp_path)] == names


@pytest.mark.parametrize(
    "text",
    ["a.png\tb.png", "a.png;b.png", "left;right\na.png;b.png", "Left_Image,Right_Image\na.png,b.png"],
    ids=["tabs", "semicolons", "titles", "longer-titles"],
)
def test_lists_as_other_programs_write_them(tmp_path, text: str) -> None:
    touch(tmp_path, "a.png", "b.png")
    (tmp_path / "pairs.csv").write_text(text + "\n")
    assert [pair[1:] for pair in found(str(tmp_path / "pairs.csv"), root=tmp_path)] == [("a.png", "b.png")]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (("", ""), "An input is empty"),
        (("https://x.org/a.png", "b.png"), "https://x.org/a.png is an address: download it first"),
        (("rtsp://x.org/a",), "cameras and streams go to --live"),
        (("0", "1"), "such as --live 0"),
        (("/dev/video9", "b.png"), "such as --live 9"),
    ],
)
def test_what_is_no_file(inputs, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_pairs(*inputs)


def test_addresses_in_a_list(tmp_path) -> None:
    (tmp_path / "pairs.csv").write_text("https://x.org/a.png,https://x.org/b.png\n")
    with pytest.raises(InputError, match=r"line 1: https://x.org/a.png is an address"):
        find_pairs(str(tmp_path / "pairs.csv"))
