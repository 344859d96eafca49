"""Cells of an image without colour: place alone decides."""

import torch

from matchattention.synth.photos.superpixels import superpixels


def test_a_grey_image_falls_into_the_grids_cells():
    """Two rows and six columns: every cell is a rectangle of its own."""
    image = torch.full((1, 3, 64, 96), 0.5)
    labels = superpixels(image, (2, 6), torch.ones(1), torch.zeros(1), torch.zeros(1, 2, 3, 3))[0]
    for row in range(2):
        for column in range(6):
            inside = labels[row * 32 + 4 : row * 32 + 28, column * 16 + 3 : column * 16 + 13]
            assert inside.unique().numel() == 1
    assert labels.unique().numel() == 12
