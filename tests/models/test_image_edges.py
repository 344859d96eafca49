"""What happens to an image before and after the network: padding, halving, and the edge of a map."""

import torch

from matchattention import match_attention
from matchattention.layers.families import SwinAttention
from matchattention.models.network import coarse_field, crop_field, pad_image
from matchattention.ops.match_attention.positions import windows


def test_padding_is_above_and_on_the_right():
    image = torch.rand(1, 3, 30, 40)
    padded = pad_image(image)
    assert padded.shape == (1, 3, 32, 64)
    assert torch.equal(padded[..., 2:, :40], image)
    assert torch.equal(padded[..., :2, :40], image[..., :1, :].expand(1, 3, 2, 40))
    assert torch.equal(padded[..., 2:, 40:], image[..., -1:].expand(1, 3, 30, 24))
    assert torch.equal(crop_field(padded.permute(0, 2, 3, 1), 30, 40), image.permute(0, 2, 3, 1))


def test_a_field_found_at_half_size_is_doubled():
    def find(first, second):
        assert torch.equal(first, torch.full((1, 3, 8, 11), 200.0))  # at an odd border the mean of what is there
        assert torch.equal(second, torch.zeros(1, 3, 8, 11))
        return torch.tensor([-4.0, 1.5]).expand(2, 8, 11, 2)

    field = coarse_field(find, torch.full((1, 3, 16, 21), 200.0), torch.zeros(1, 3, 16, 21))
    assert torch.equal(field, torch.tensor([-8.0, 3.0]).expand(2, 16, 21, 2))


def test_swin_attends_to_no_padding():
    """With equal values everywhere any weights give that value, unless zeros of the padding take part."""
    q, k = torch.randn(2, 5, 11, 2, 4), torch.randn(2, 5, 11, 2, 4)
    for shifted in (False, True):
        out, _ = SwinAttention(8, shifted)(q, k, torch.ones(2, 5, 11, 2, 3), torch.zeros(2, 5, 11, 1, 2))
        torch.testing.assert_close(out, torch.ones_like(out))


def test_the_last_window_of_a_very_wide_map_stays_inside():
    """At 2^16 tokens fp32 rounds the far limit up to an integer."""
    width = 2**16
    placed = windows(torch.full((1, 1, width, 1, 2), 1e6), (1, 4))
    assert (placed.column == width - 4).all()
    assert ((placed.right >= 0) & (placed.right <= 1)).all()


def test_a_map_narrower_than_the_window_is_attended_to_whole():
    """Two keys, a window of four: a plain softmax over the two, whatever lies beyond."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 3, 2, 2, 4) for _ in range(3))
    out, _ = match_attention(q, k, v, torch.randn(1, 3, 2, 1, 2), (1, 4), "dot", backend="reference")
    weights = (torch.einsum("bhwgc,bhngc->bhgwn", q, k) / 2).softmax(-1)
    torch.testing.assert_close(out, torch.einsum("bhgwn,bhngc->bhwgc", weights, v))
