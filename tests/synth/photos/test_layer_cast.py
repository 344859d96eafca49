"""Casting layers: closed-form cases, and the kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from matchattention.synth.photos.layer_cast import cast_torch, cast_triton
from matchattention.synth.photos.superpixels import superpixels


def problem(pairs: int = 2, height: int = 6, width: int = 24, layers: int = 5, seed: int = 0):
    """Random label maps and planes: (labels, planes, sheets, offset, width)."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, layers - 1, (pairs, 2, height, 32), generator=generator, dtype=torch.uint8)
    labels[:, 0] = 0
    labels[:, 1] = labels[:, 1, :, ::4].repeat_interleave(4, -1)
    planes = torch.rand((pairs, layers, 3), generator=generator)
    planes = planes * torch.tensor([6.0, 0.6, 0.2]) - torch.tensor([0.0, 0.3, 0.1])
    planes[:, 0] = torch.tensor([2.0, 0.0, 0.0])
    planes[0, 2, 0] = -1e9
    sheets = torch.tensor([(0, 0), *((1, label) for label in range(layers - 1))])
    between = torch.rand(pairs, generator=generator)
    return labels, planes, sheets, torch.cat([between, between - 1]), width


def test_a_plane_is_seen_where_geometry_says():
    """The layer with label 1 occupies canonical columns 14 … 17 and is shifted by s times its disparity."""
    labels = torch.zeros((1, 2, 4, 32), dtype=torch.uint8)
    labels[:, 1, :, 14:18] = 1
    planes = torch.tensor([[[2.0, 0.0, 0.0], [8.0, 0.0, 0.0]]])
    sheets = torch.tensor([(0, 0), (1, 1)])
    seen = cast_torch(labels, planes, sheets, torch.tensor([0.5, -0.5]), 32)
    left, right = (torch.nonzero(seen.layer[view, 0])[:, 0].tolist() for view in (0, 1))
    assert left == [18, 19, 20, 21]
    assert right == [10, 11, 12, 13]
    assert (seen.disparity[0, 0, left] == 8).all()
    assert (seen.disparity[0, 0, :18] == 2).all()


def test_a_slanted_plane_has_the_closed_form_in_both_views():
    labels = torch.zeros((1, 1, 3, 40), dtype=torch.uint8)
    a, b, c, s = 6.0, 0.2, 0.5, 0.25
    seen = cast_torch(labels, torch.tensor([[[a, b, c]]]), torch.tensor([(0, 0)]), torch.tensor([s, s - 1]), 40)
    x = torch.arange(40) - 19.5
    y = torch.arange(3)[:, None] - 1.0
    for view, shift in ((0, s), (1, s - 1)):
        u = (x - shift * (a + c * y)) / (1 + shift * b)
        torch.testing.assert_close(seen.disparity[view], a + b * u + c * y)
    # A left pixel and its match see the same point of the sheet.
    left = seen.disparity[0]
    match = x - left
    u = (match - (s - 1) * (a + c * y)) / (1 + (s - 1) * b)
    torch.testing.assert_close(a + b * u + c * y, left)


def test_hidden_layers_and_negative_disparities_are_never_seen():
    seen = cast_torch(*problem())
    assert not (seen.layer[[0, 2]] == 2).any()
    assert (seen.disparity >= 2).all()  # the background is everywhere behind


@pytest.mark.parametrize("seed", range(3))
def test_kernel_equals_the_reference(seed: int):
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    labels, planes, sheets, offset, width = problem(seed=seed)
    wanted = cast_torch(labels, planes, sheets, offset, width)
    got = cast_triton(labels.to(device), planes.to(device), sheets, offset.to(device), width)
    same = wanted.layer == got.layer.cpu()
    assert same.float().mean() > 0.995  # a label's border may fall on either side of a rounding
    torch.testing.assert_close(got.disparity.cpu()[same], wanted.disparity[same], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(got.column.cpu()[same], wanted.column[same], atol=1e-3, rtol=1e-5)


def test_regions_follow_edges():
    image = torch.full((1, 3, 64, 96), 0.2)
    image[:, 0, :, 41:] = 0.9
    zero = torch.zeros(1)
    labels = superpixels(image, (3, 4), torch.tensor([0.1]), zero, torch.zeros(1, 2, 3, 3))
    left, right = set(labels[0, :, :39].unique().tolist()), set(labels[0, :, 43:].unique().tolist())
    assert left
    assert right
    assert not left & right
    merged = superpixels(image, (3, 4), torch.tensor([0.1]), torch.tensor([0.1]), torch.zeros(1, 2, 3, 3))
    assert len(merged.unique()) <= 3  # one cluster may hold the blurred edge
    assert len(labels.unique()) > 6


def test_wobble_bends_the_cells_of_empty_images():
    image = torch.full((1, 3, 64, 96), 0.5)
    wobble = torch.randn((1, 2, 5, 5), generator=torch.Generator().manual_seed(0))
    straight = superpixels(image, (3, 4), torch.ones(1), torch.zeros(1), torch.zeros(1, 2, 5, 5))
    bent = superpixels(image, (3, 4), torch.ones(1), torch.zeros(1), 0.6 * wobble)
    assert len(straight.unique()) == 12
    assert (straight != bent).float().mean() > 0.05
