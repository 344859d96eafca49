"""Names of the patterns that cut holes into cards; `shapes.mask_keeps` defines them."""

from __future__ import annotations

from matchattention.synth import shapes
from matchattention.synth.tables import number

SOLID, DISC, LATTICE, CHAIN, LEAVES, SLATS, FRAME, RAGGED, GLYPHS, BRANCHES, GRASS, STAR, WHEEL = (
    int(number(mask))
    for mask in (
        shapes.SOLID,
        shapes.DISC,
        shapes.LATTICE,
        shapes.CHAIN,
        shapes.LEAVES,
        shapes.SLATS,
        shapes.FRAME,
        shapes.RAGGED,
        shapes.GLYPHS,
        shapes.BRANCHES,
        shapes.GRASS,
        shapes.STAR,
        shapes.WHEEL,
    )
)
