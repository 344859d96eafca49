"""The scene as numbers."""

from __future__ import annotations

import torch

from matchattention.synth.rays.tables import photo_pyramid


def test_photos_are_halved_in_linear_light() -> None:
    """Half black, half white is half the light, which a display shows at 255 (1/2)^(1/2.2) = 186 and not at 128."""
    checkers = torch.tensor([[0, 255], [255, 0]], dtype=torch.uint8).repeat(4, 4)
    coloured = torch.stack((checkers, torch.zeros_like(checkers), torch.full_like(checkers, 90)))
    photos = photo_pyramid(coloured[None], torch.device("cpu"))
    assert (photos.size, photos.levels, photos.amount) == (8, 2, 1)
    assert photos.starts.tolist() == [0, 64]
    assert set(photos.texels[:64].tolist()) == {90 << 16, 255 | 90 << 16}
    assert set(photos.texels[64:].tolist()) == {186 | 90 << 16}
