"""Pieces of photos that move, each its own way, before a camera that moves too."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from matchattention.synth.dice import Dice
from matchattention.synth.photos import moving_photos
from matchattention.synth.photos.moving_photos import MovingPhotoConfig, MovingPhotoStream, draw_layers

CAMERA = torch.tensor([[1.0, 0.0, 0.1], [0.0, 1.0, 0.0], [0.2, 0.0, 1.0]])
OWN = torch.tensor([[0.9, -0.1, 0.0], [0.1, 0.9, 0.3], [0.0, 0.0, 1.0]])


def test_a_piece_moves_first_by_itself_and_then_with_the_camera(monkeypatch) -> None:
    motions = iter((CAMERA, OWN))
    monkeypatch.setattr(
        moving_photos, "plane_motion", lambda dice, config, count, about: next(motions).expand(dice.count, count, 3, 3)
    )
    config = replace(MovingPhotoConfig(), still=0.0)
    photo = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    layers = draw_layers(Dice(1, [0, 1], "cpu"), config, photo, (32, 48))
    torch.testing.assert_close(layers.motion[:, 0], torch.eye(3).expand(2, config.layers, 3, 3))
    torch.testing.assert_close(layers.motion[:, 1, 0], CAMERA.expand(2, 3, 3))  # the background stands still
    torch.testing.assert_close(layers.motion[:, 1, 1:], (CAMERA @ OWN).expand(2, config.layers - 1, 3, 3))
    product = layers.motion @ layers.back
    torch.testing.assert_close(product, torch.eye(3).expand_as(product), atol=1e-5, rtol=0)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_motion_blurs_where_it_is_asked_for(share: float, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(
        moving_photos, "motion_blur", lambda image, field, near, shutter: calls.append(shutter.tolist()) or image
    )
    tiles = torch.randint(0, 256, (6, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    config = MovingPhotoConfig(blur=(share, 0.5, 0.5))
    MovingPhotoStream(tiles, (32, 64), 2, 1, "cpu", config=config).next()
    assert calls == ([[0.5, 0.5]] if share else [])
