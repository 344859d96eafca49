"""Matrix products by oneDNN, which takes what follows them into the same pass.

PyTorch's own linear layer goes to MKL, which was half as fast on an AMD processor with AVX-512, and copies the bias to
every row first. The operators are those that `torch.compile` calls; they are not promised to stay, so they are tried
before they are used.
"""

from __future__ import annotations

import functools
import platform

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_X86 = ("x86_64", "amd64")


@functools.cache
def oneDNN_is_here() -> bool:
    """Whether this PyTorch has the operators and they compute what they should; measured on x86 alone."""
    if platform.machine().lower() not in _X86 or not torch.backends.mkldnn.is_available():
        return False
    try:
        with torch.inference_mode():
            tokens, other = torch.linspace(-1, 1, 24).view(2, 3, 4), torch.linspace(-2, 3, 30).view(2, 3, 5)
            product = Product(torch.linspace(-1, 2, 20).view(5, 4), torch.linspace(0, 1, 5))
            plain = F.linear(tokens, product.weight, product.bias)
            pairs = (
                (product(tokens), plain),
                (product.gelu(tokens), F.gelu(plain)),
                (product.plus(tokens, other), plain + other),
                (product.times(tokens, other), plain * other),
            )
            return all(torch.allclose(found, expected, rtol=1e-4, atol=1e-5) for found, expected in pairs)
    except (RuntimeError, AttributeError, TypeError, NotImplementedError):
        return False


class Product(nn.Module):
    """A linear layer, fp32.

    Args:
        weight: (outputs, inputs).
        bias: (outputs,) or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Buffer(weight.detach().contiguous())  # a large network's is not kept twice
        self.bias = None if bias is None else nn.Buffer(bias.detach())

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(tokens, self.weight, self.bias, "none", [], "")

    def gelu(self, tokens: Tensor) -> Tensor:
        """GELU of the product."""
        return torch.ops.mkldnn._linear_pointwise(tokens, self.weight, self.bias, "gelu", [], "none")

    def plus(self, tokens: Tensor, other: Tensor) -> Tensor:
        """The product and another tensor of its shape, added up."""
        return torch.ops.mkldnn._linear_pointwise.binary(tokens, other, self.weight, self.bias, "add")

    def times(self, tokens: Tensor, other: Tensor) -> Tensor:
        """The product times another tensor of its shape, number by number."""
        return torch.ops.mkldnn._linear_pointwise.binary(tokens, other, self.weight, self.bias, "mul")


def product_of(layer: nn.Linear) -> Product:
    """The same layer."""
    return Product(layer.weight, layer.bias)
