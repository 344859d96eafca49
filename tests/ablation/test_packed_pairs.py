import numpy as np
import pytest

from matchattention.ablation.packed_pairs import in_turn, read_any, read_pairs, write_pairs
from matchattention.cli.main import main
from matchattention.errors import InputError
from matchattention.training.real_pairs import RealPair


def pair(name, dataset="kitti2015", seed=0):
    dice = np.random.default_rng(seed)
    left, right = dice.integers(0, 256, (2, 12, 20, 3), dtype=np.uint8)
    disparity = np.round(dice.uniform(0, 60, (12, 20)) * 128).astype(np.float32) / 128
    disparity[3, :5] = np.inf
    return RealPair(dataset, name, left, right, disparity, dice.random((12, 20)) < 0.8)


def same(first, second):
    return first[:2] == second[:2] and all(np.array_equal(a, b) for a, b in zip(first[2:6], second[2:6]))


def test_pairs_come_back_exactly(tmp_path):
    pairs = [pair("a"), pair("b", "middlebury", 1)]
    assert write_pairs(tmp_path / "pairs", pairs, 1 << 20) == ["kitti2015/a", "middlebury/b"]
    found = read_any([str(tmp_path / "pairs")])
    assert len(found) == 2
    assert all(same(a, b) for a, b in zip(pairs, found))


def test_a_full_file_holds_the_first_of_every_dataset(tmp_path):
    pairs = [pair("a"), pair("b"), pair("c", "middlebury")]
    turned = in_turn(pairs)
    assert [entry.name for entry in turned] == ["a", "c", "b"]
    assert write_pairs(tmp_path / "pairs", turned, 4096 + 5000) == ["kitti2015/a", "middlebury/c"]
    with pytest.raises(InputError, match="Not one pair fits"):
        write_pairs(tmp_path / "none", turned, 100)
    assert not (tmp_path / "none").exists()


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "pairs"
    write_pairs(path, [pair("a")], 1 << 20)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="ends within a pair"):
        read_pairs(path)
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match="ablate pack"):
        read_pairs(path)


def test_a_disparity_the_file_cannot_hold(tmp_path):
    wide = pair("a")
    wide.disparity[0, 0] = 600
    with pytest.raises(InputError, match="511 px"):
        write_pairs(tmp_path / "pairs", [wide], 1 << 20)


def test_pack_says_what_it_needs(capsys):
    assert main(["ablate", "pack"]) == 2
    assert "--real" in capsys.readouterr().err
