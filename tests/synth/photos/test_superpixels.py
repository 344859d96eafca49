"""Place against colour: cells have the same extent in both directions."""

import torch

from matchattention.synth.photos.superpixels import _features, superpixels


def test_place_is_measured_in_cells():
    """One unit a cell down as across, times the compactness."""
    features = _features(torch.zeros(1, 3, 5, 9), (2, 8), torch.tensor([0.5]), torch.zeros(1, 2, 3, 3))
    x, y = features[0, 3], features[0, 4]
    assert x[0].tolist() == [0.5 * column for column in range(9)]
    assert y[:, 0].tolist() == [0.25 * row for row in range(5)]


def test_a_grey_image_falls_into_the_grids_cells():
    image = torch.full((1, 3, 64, 96), 0.5)
    labels = superpixels(image, (2, 6), torch.ones(1), torch.zeros(1), torch.zeros(1, 2, 3, 3))[0]
    assert labels.unique().numel() == 12
