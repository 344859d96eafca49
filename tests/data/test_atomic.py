"""A file appears whole or not at all."""

import pytest

from matchattention.data.atomic import replacing


def test_a_failure_in_the_middle_of_writing_keeps_the_old_file_and_leaves_nothing(tmp_path):
    path = tmp_path / "result.json"
    path.write_text("old")

    def interrupted():
        with replacing(path) as temporary:
            temporary.write_text("ha")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.suffix == ".json"
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]
