"""The bank's file: what goes in comes out, and wrong files are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from matchattention.errors import InputError
from matchattention.synth.photos import photo_bank


def tiles(count: int = 5, size: int = 32) -> torch.Tensor:
    """Smooth coloured tiles with a sharp edge, (T, 3, S, S) uint8."""
    generator = torch.Generator().manual_seed(2)
    coarse = torch.rand((count, 3, 4, 4), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")
    smooth[:, :, : size // 2] *= 0.5
    return (smooth.clamp(0, 1) * 255).byte()


def test_round_trip_is_close_and_small(tmp_path: Path):
    stored = tiles(70)  # more than are decoded at once
    path = tmp_path / "bank.safetensors"
    photo_bank.save(stored, path, quality=92)
    loaded = photo_bank.load(path)
    assert loaded is not None
    assert loaded.shape == stored.shape
    assert loaded.dtype == torch.uint8
    assert (loaded.float() - stored.float()).abs().mean() < 3
    assert path.stat().st_size < stored.numel() / 3


def test_large_coefficients_survive(tmp_path: Path):
    checker = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    checker[..., 8:16, :] = 255  # whole blocks of black and white: the largest steps there are
    photo_bank.save(checker, tmp_path / "bank.safetensors", quality=100)
    loaded = photo_bank.load(tmp_path / "bank.safetensors")
    assert loaded is not None
    assert (loaded.int() - checker.int()).abs().max() <= 2


def test_absent_bank_is_none_unless_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(photo_bank.ENVIRONMENT, raising=False)
    monkeypatch.setattr(photo_bank, "DEFAULT_PATH", tmp_path / "none.safetensors")
    assert photo_bank.load() is None
    with pytest.raises(InputError, match="No photo bank"):
        photo_bank.load(tmp_path / "none.safetensors")
    monkeypatch.setenv(photo_bank.ENVIRONMENT, str(tmp_path / "other.safetensors"))
    with pytest.raises(InputError, match="No photo bank"):
        photo_bank.load()
    photo_bank.save(tiles(2), tmp_path / "other.safetensors")
    loaded = photo_bank.load()
    assert loaded is not None
    assert loaded.shape[0] == 2


def test_wrong_and_damaged_files_are_named(tmp_path: Path):
    other = tmp_path / "weights.safetensors"
    save_file({"luma": torch.zeros(3)}, other)
    with pytest.raises(InputError, match="not a photo bank"):
        photo_bank.load(other)
    text = tmp_path / "text.safetensors"
    text.write_text("hello")
    with pytest.raises(InputError, match="damaged"):
        photo_bank.load(text)
    cut = tmp_path / "cut.safetensors"
    save_file(
        {"luma": torch.zeros(9, dtype=torch.uint8), "chroma": torch.zeros(9, dtype=torch.uint8)},
        cut,
        metadata={"format": photo_bank.FORMAT, "tiles": "1", "size": "32", "quality": "80"},
    )
    with pytest.raises(InputError, match="damaged"):
        photo_bank.load(cut)


def test_only_square_byte_tiles_are_stored(tmp_path: Path):
    for wrong in (tiles().float(), tiles()[:, :1], tiles()[..., :16], tiles(size=24)):
        with pytest.raises(InputError, match=r"(?i)tiles"):
            photo_bank.save(wrong, tmp_path / "bank.safetensors")
    assert not (tmp_path / "bank.safetensors").exists()
