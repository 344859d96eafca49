"""What of a prepared network has another form on a CPU."""

from __future__ import annotations

from torch import nn

from matchattention.layers.block import MATBlock
from matchattention.layers.encoder import EncoderBlock, Stem
from matchattention.layers.global_attention import GlobalAttentionLayer
from matchattention.layers.upsampling import ConvexUpsampling, FeatureUpsampling
from matchattention.runtime.cpu.layers import CpuBlock, CpuContext, CpuEncoderBlock, CpuStem
from matchattention.runtime.cpu.upsampling import CpuConvex, CpuLift
from matchattention.runtime.stand_in import StandIn

_FORMS: dict[type[nn.Module], type[StandIn]] = {
    Stem: CpuStem,
    EncoderBlock: CpuEncoderBlock,
    GlobalAttentionLayer: CpuContext,
    MATBlock: CpuBlock,
    FeatureUpsampling: CpuLift,
    ConvexUpsampling: CpuConvex,
}


def replace_for_cpu(module: nn.Module) -> None:
    """Replace what has another form, in place."""
    for name, child in module.named_children():
        form = _FORMS.get(type(child))
        if form is None:
            replace_for_cpu(child)
        elif _fits(child):
            setattr(module, name, form(child))  # type: ignore[arg-type]


def _fits(module: nn.Module) -> bool:
    if isinstance(module, MATBlock):
        return module.is_the_papers
    # A norm that a training has put in is not folded yet.
    return getattr(module, "norm", None) is None or not isinstance(module, FeatureUpsampling | ConvexUpsampling)
