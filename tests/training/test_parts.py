"""Large files cut into parts."""

from __future__ import annotations

import numpy as np
import pytest

from matchattention.errors import InputError
from matchattention.training.parts import join_parts, write_parts


class TestParts:
    def test_round_trip_and_stale_parts(self, tmp_path):
        path = tmp_path / "file"
        data = np.random.default_rng(0).bytes(1000)
        assert len(write_parts(data, path, 300)) == 4
        assert join_parts(path) == data
        assert len(write_parts(data[:100], path, 300)) == 1
        assert join_parts(path) == data[:100]

    def test_missing_or_mixed_parts_are_noticed(self, tmp_path):
        path = tmp_path / "file"
        assert join_parts(path) is None
        parts = write_parts(b"a" * 1000, path, 300)
        parts[-1].unlink()
        with pytest.raises(InputError, match="do not fit together"):
            join_parts(path)
