"""Names of the patterns that cut holes into cards; `rays.masks.mask_keeps` defines them."""

from __future__ import annotations

from matchattention.synth.rays import masks
from matchattention.synth.rays.tables import number

SOLID, DISC, LATTICE, CHAIN, LEAVES, SLATS, FRAME, RAGGED, GLYPHS, BRANCHES, GRASS, STAR, WHEEL = (
    int(number(mask))
    for mask in (
        masks.SOLID,
        masks.DISC,
        masks.LATTICE,
        masks.CHAIN,
        masks.LEAVES,
        masks.SLATS,
        masks.FRAME,
        masks.RAGGED,
        masks.GLYPHS,
        masks.BRANCHES,
        masks.GRASS,
        masks.STAR,
        masks.WHEEL,
    )
)
