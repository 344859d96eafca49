"""Small networks in which every weight matters, the variants that runtimes are compared on, and images for them."""

import torch

from matchattention.models.config import NetworkConfig
from matchattention.models.network import MatchNetwork

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = NetworkConfig(
    channels=(16, 16, 32, 32),
    encoder_depths=(1, 1, 2, 1),
    decoder_depths=(2, 1, 1, 1),
    initial_layers=1,
    sinkhorn_iterations=3,
)
FLOW = {"task": "flow", "windows": ((4, 4),) * 4}
# What of SMALL is changed, and height and width of the images.
VARIANTS = {
    "rt": ({}, (60, 90)),
    "2d-dot-no-gate": ({"windows": ((4, 4), (1, 8), (1, 4), (1, 4)), "similarity": "dot", "gate": False}, (32, 64)),
    "full": ({"compression": 1, "upsampling_border": "zero", "residual_scales": False}, (32, 40)),
    "flow": ({**FLOW, "decoder_depths": (1, 1, 1, 1)}, (32, 40)),
    "local": ({"attention": "local", "channels": (48, 48, 48, 48)}, (1, 33)),
    "nat": ({"attention": "neighborhood"}, (32, 64)),
    "swin": ({"attention": "swin"}, (32, 64)),
    "global-1d": ({"attention": "global-1d"}, (32, 64)),
    "double-cross": ({"first_attention": "cross"}, (33, 20)),
    "released": ({"initial": "softmax", "self_mask": True}, (32, 40)),
}


def lively(config, device=DEVICE):
    """A network whose every weight matters: positions move, norms and biases are not trivial."""
    torch.manual_seed(0)
    made = MatchNetwork(config).eval()
    for name, parameter in made.named_parameters():
        if parameter.dim() < 2:
            parameter.data += 0.1 * torch.randn_like(parameter)
        elif name.endswith("out.weight"):
            parameter.data[-2:] += 0.02 * torch.randn_like(parameter.data[-2:])
    return made.to(device)


def images(height, width, pairs=1, device=DEVICE):
    """Two views (pairs, 3, height, width) uint8."""
    generator = torch.Generator().manual_seed(1)
    shape = (pairs, 3, height, width)
    return [torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).to(device) for _ in range(2)]
