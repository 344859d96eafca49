"""The attention families of the ablation, each against its definition."""

import pytest
import torch

from matchattention.layers.families import FAMILIES, make_family


def tokens(height=6, width=11, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, height, width, 2, 4, generator=generator) for _ in range(3)]


def attend(q, keys, values):
    return torch.softmax(keys @ q / 2, 0) @ values


def test_neighborhood_shifts_inwards_at_borders():
    q, k, v = tokens()
    out, weights = make_family("neighborhood", (1, 4), "l1", 0)(q, k, v, torch.zeros(2, 6, 11, 1, 2))
    assert weights is None
    rows, columns = slice(0, 6), slice(4, 11)  # six rows are fewer than seven: all of them
    expected = attend(q[0, 2, 10, 1], k[0, rows, columns, 1].reshape(-1, 4), v[0, rows, columns, 1].reshape(-1, 4))
    torch.testing.assert_close(out[0, 2, 10, 1], expected)
    expected = attend(q[1, 5, 4, 0], k[1, :, 1:8, 0].reshape(-1, 4), v[1, :, 1:8, 0].reshape(-1, 4))
    torch.testing.assert_close(out[1, 5, 4, 0], expected)


@pytest.mark.parametrize("depth", [0, 1])
def test_swin_stays_inside_its_tile(depth):
    q, k, v = tokens(12, 20)
    out, _ = make_family("swin", (1, 4), "l1", depth)(q, k, v, torch.zeros(2, 12, 20, 1, 2))
    rows, columns = (slice(0, 8), slice(8, 16)) if depth == 0 else (slice(4, 12), slice(4, 12))
    y, x = (3, 9) if depth == 0 else (5, 9)
    expected = attend(q[1, y, x, 0], k[1, rows, columns, 0].reshape(-1, 4), v[1, rows, columns, 0].reshape(-1, 4))
    torch.testing.assert_close(out[1, y, x, 0], expected)


@pytest.mark.parametrize(
    ("depth", "y", "x", "rows", "columns"),
    [
        (0, 4, 9, slice(0, 6), slice(8, 11)),  # the tile's last rows and columns lie beyond the map
        (1, 1, 2, slice(0, 4), slice(0, 4)),  # shifted by half a tile, the first ones lie before it
        (1, 5, 10, slice(4, 6), slice(4, 11)),
    ],
)
def test_swin_does_not_attend_to_padding(depth, y, x, rows, columns):
    q, k, v = tokens()
    out, _ = make_family("swin", (1, 4), "l1", depth)(q, k, v, torch.zeros(2, 6, 11, 1, 2))
    expected = attend(q[1, y, x, 0], k[1, rows, columns, 0].reshape(-1, 4), v[1, rows, columns, 0].reshape(-1, 4))
    torch.testing.assert_close(out[1, y, x, 0], expected)


def test_global_row():
    q, k, v = tokens()
    out, _ = make_family("global-1d", (1, 4), "l1", 0)(q, k, v, torch.zeros(2, 6, 11, 1, 2))
    torch.testing.assert_close(out[0, 3, 7, 1], attend(q[0, 3, 7, 1], k[0, 3, :, 1], v[0, 3, :, 1]))


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "match"])
def test_only_match_attention_follows_the_position(name):
    q, k, v = tokens()
    family = make_family(name, (1, 4), "l1", 0)
    still, moved = (family(q, k, v, torch.full((2, 6, 11, 1, 2), offset))[0] for offset in (0.0, 2.0))
    assert torch.equal(still, moved)


def test_unknown_family():
    with pytest.raises(ValueError, match="attention is one of"):
        make_family("flash", (1, 4), "l1", 0)
