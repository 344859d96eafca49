"""The two functions that choose among the primitives, written from their table.

Triton resolves calls by name when it compiles, so a kernel cannot look a function up in a table. Writing the branches
as source keeps the table the one place: Triton reads it like any other function, and its cache follows the functions
it calls.
"""

from __future__ import annotations

import linecache
from typing import Any

from matchattention.synth.rays.dialect import any_lane, jit, tl
from matchattention.synth.rays.primitives import PRIMITIVES

SOLIDS = tuple(PRIMITIVES)
KINDS = (*SOLIDS, "pane")  # panes of glass are seen through: the caster passes them, the shader does not
SOLID_KINDS = tl.constexpr(len(SOLIDS))
PANE = tl.constexpr(KINDS.index("pane"))
CARD = tl.constexpr(KINDS.index("card"))


def _hit_source() -> str:
    lines = [
        "def hit_of(KIND: tl.constexpr, p, ax, ay, az, ux, uy, uz):",
        '    """First hit of object-space rays with a solid; `p` points at its row, which ends in its parameters."""',
        "    t = 0.0 * ux",
    ]
    for kind, (name, primitive) in enumerate(PRIMITIVES.items()):
        loads = "".join(f", tl.load(p + {12 + k})" for k in range(len(primitive.parameters)))
        lines += [
            f"    {'elif' if kind else 'if'} KIND == {kind}:",
            f"        t = hit_{name}(ax, ay, az, ux, uy, uz{loads})",
        ]
    return "\n".join([*lines, "    return t", ""])


def _normal_source() -> str:
    lines = [
        "def object_normal(kind, x, y, z, p0, p1):",
        '    """Outward normal (not normalised) in object space at a surface point, by each lane\'s kind."""',
        "    nx = x",
        "    ny = y",
        "    nz = z",
    ]
    for kind, (name, primitive) in enumerate(PRIMITIVES.items()):
        indent = "    "
        lines.append(f"    chosen = kind == {kind}")
        if primitive.costly:
            lines.append("    if any_lane(chosen):")
            indent *= 2
        lines.append(f"{indent}ax, ay, az = normal_{name}(x, y, z, p0, p1)")
        lines += [f"{indent}n{c} = tl.where(chosen, a{c}, n{c})" for c in "xyz"]
    return "\n".join([*lines, "    return nx, ny, nz", ""])


def _written(name: str, source: str) -> Any:
    """A dialect function from its source; Triton and tracebacks find the source where Python keeps lines of files."""
    file = f"<{name}, written by {__name__}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"tl": tl, "any_lane": any_lane, "__name__": __name__}
    for kind, primitive in PRIMITIVES.items():
        names |= {f"hit_{kind}": primitive.hit, f"normal_{kind}": primitive.normal}
    exec(compile(source, file, "exec"), names)
    return jit(names[name])


hit_of = _written("hit_of", _hit_source())
object_normal = _written("object_normal", _normal_source())
