"""What all pictures share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matchattention.data.atomic import replacing

BLUE, ORANGE, GREEN, GREY = "#1f6fb4", "#d9661f", "#3a8f4d", "#9a9a9a"


@contextmanager
def picture(path: Path, columns: int = 1, size: tuple[float, float] = (6.5, 4.0)) -> Iterator[Any]:
    """Yield axes (a list where there are several) and write the picture when the block ends well."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {"font.size": 9, "axes.titlesize": 10, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(1, columns, figsize=size, layout="constrained")
        try:
            yield axes
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], dpi=100)
        finally:
            pyplot.close(figure)


def chip(data: dict[str, Any]) -> str:
    """The hardware of a measurement."""
    found = data.get("environment", {})
    return str(found.get("gpu") or found.get("processor") or "unknown hardware")
