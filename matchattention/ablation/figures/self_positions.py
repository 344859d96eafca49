"""Figure 4: where tokens look in their own view, and whether occluded ones look at visible ones.

The renderer knows what is occluded and which surface a hidden pixel lies on, so the paper's observation becomes a
measurement: the share of occluded tokens whose arrow ends on a visible token, beside the share that the same arrows
reach when they are handed to other occluded tokens, and when they point the other way.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from matchattention.ablation.figures.settings import Settings
from matchattention.ablation.pool import render_pool
from matchattention.data.atomic import replacing
from matchattention.data.batch import Batch
from matchattention.models import checkpoint
from matchattention.models.network import MatchNetwork
from matchattention.synth.world.config import PRESETS

SEED = 1_000_004  # of no training
TOKEN = 4  # px
SAME_SURFACE = 1.0  # px of disparity
LEAST_TOKENS = 30  # occluded ones of a view; fewer do not make a share
WAYS = ("arrow", "shuffled", "opposite")


class View(NamedTuple):
    """One view at 1/4.

    Attributes:
        arrows: (h, w, heads, 2) tokens, along the row alone where the window is one row.
        occluded: (h, w) bool.
        outside: (h, w) bool, those of them whose match lies outside the other view.
        known: (h, w) bool.
        disparity: (h, w) px.
    """

    arrows: Tensor
    occluded: Tensor
    outside: Tensor
    known: Tensor
    disparity: Tensor


def views_of(network: MatchNetwork, batch: Batch) -> list[View]:
    """Both views of every pair: left ones first."""
    with torch.inference_mode():
        arrows = network(batch.image0, batch.image1).self_position.float()
    if network.config.windows[-1][0] == 1:
        arrows = torch.stack((arrows[..., 0], torch.zeros_like(arrows[..., 1])), -1)
    assert batch.occluded0 is not None
    assert batch.occluded1 is not None

    def at_centres(first: Tensor, second: Tensor) -> Tensor:
        return torch.cat((first, second))[:, TOKEN // 2 :: TOKEN, TOKEN // 2 :: TOKEN]

    occluded = at_centres(batch.occluded0, batch.occluded1)
    x = at_centres(batch.field0, batch.field1)[..., 0]
    target = x + TOKEN * torch.arange(x.shape[-1], device=x.device) + TOKEN // 2
    outside = occluded & ((target < 0) | (target >= batch.image0.shape[-1]))
    known = at_centres(batch.valid0, batch.valid1)
    return [View(*view) for view in zip(arrows, occluded, outside, known, x.abs())]


def reached(view: View, arrows: Tensor) -> tuple[Tensor, Tensor]:
    """(h, w) bool each: does an arrow (h, w, 2) end on a visible token, and on one of the same surface."""
    height, width = view.occluded.shape
    rows, columns = torch.meshgrid(
        torch.arange(height, device=arrows.device), torch.arange(width, device=arrows.device), indexing="ij"
    )
    x, y = (columns + arrows[..., 0].round()).long(), (rows + arrows[..., 1].round()).long()
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    x, y = x.clamp(0, width - 1), y.clamp(0, height - 1)
    visible = inside & view.known[y, x] & ~view.occluded[y, x]
    return visible, visible & ((view.disparity[y, x] - view.disparity).abs() < SAME_SURFACE)


def towards_visible(view: View, arrows: Tensor) -> tuple[Tensor, Tensor]:
    """(h, w) bool each: does an arrow point to the side of its row where the nearest visible token is; is there one."""
    width = view.occluded.shape[1]
    place = torch.arange(width, device=arrows.device).expand_as(view.occluded)
    seen = view.known & ~view.occluded
    left = torch.where(seen, place, torch.full_like(place, -width)).cummax(1).values
    right = torch.where(seen, place, torch.full_like(place, 2 * width)).flip(1).cummin(1).values.flip(1)
    to_left, to_right = place - left, right - place
    decided = (to_left != to_right) & (torch.minimum(to_left, to_right) < width)
    return (arrows[..., 0] < 0) == (to_left < to_right), decided


def shares_of(view: View, generator: torch.Generator) -> dict[str, float] | None:
    """Per cent of the occluded tokens of one view, by "what/way/which"; None where there are too few."""
    found: dict[str, float] = {}
    kinds = {"occluded": view.occluded, "outside": view.outside, "hidden": view.occluded & ~view.outside}
    for kind, chosen in kinds.items():
        chosen = chosen & view.known
        if chosen.sum() < LEAST_TOKENS:
            if kind == "occluded":
                return None
            continue
        for which, arrows in _which_arrows(view).items():
            for way in WAYS:
                visible, same = reached(view, _changed(arrows, chosen, way, generator))
                found[f"{kind}/visible/{way}/{which}"] = _share(visible, chosen)
                found[f"{kind}/same surface/{way}/{which}"] = _share(same, chosen)
            right_side, decided = towards_visible(view, arrows)
            if (chosen & decided).any():
                found[f"{kind}/towards the nearest/arrow/{which}"] = _share(right_side, chosen & decided)
        length = TOKEN * view.arrows.norm(dim=-1).mean(-1)
        found[f"{kind}/length px"] = float(length[chosen].mean())
    found["visible/length px"] = float((TOKEN * view.arrows.norm(dim=-1).mean(-1))[~view.occluded].mean())
    return found


def _which_arrows(view: View) -> dict[str, Tensor]:
    heads = {f"head {number}": view.arrows[:, :, number] for number in range(view.arrows.shape[2])}
    return {"mean of heads": view.arrows.mean(2), **heads}


def _changed(arrows: Tensor, chosen: Tensor, way: str, generator: torch.Generator) -> Tensor:
    if way == "arrow":
        return arrows
    if way == "opposite":
        return -arrows
    changed = arrows.clone()
    picked = arrows[chosen]
    changed[chosen] = picked[torch.randperm(len(picked), generator=generator).to(picked.device)]
    return changed


def _share(hit: Tensor, chosen: Tensor) -> float:
    return 100 * float((hit & chosen).sum()) / float(chosen.sum())


def measure(settings: Settings) -> dict[str, Any]:
    """Shares with standard errors over pairs, of a network with trained weights."""
    network = checkpoint.load(settings.model).to(settings.device).eval()
    size, scenes = settings.size or (320, 640), settings.scenes or "mixed"
    pool = render_pool(PRESETS[scenes], size, settings.count or 48, SEED, settings.device, settings.pool_folder)
    settings.say(f"{pool.pairs} pairs of {size[0]}x{size[1]} rendered")
    generator = torch.Generator().manual_seed(0)
    by_view: list[dict[str, float]] = []
    occluded: list[float] = []
    for number, batch in enumerate(pool.batches(1)):
        views = views_of(network, batch)
        occluded.append(sum(float(view.occluded.float().mean()) for view in views) / len(views))
        by_view += [found for view in views if (found := shares_of(view, generator)) is not None]
        if (number + 1) % 8 == 0:
            settings.say(f"{number + 1} pairs")
    names = list(dict.fromkeys(name for found in by_view for name in found))
    return {
        "network": settings.model,
        "scenes": scenes,
        "size": list(size),
        "pairs": pool.pairs,
        "seed": SEED,
        "views": len(by_view),
        "occluded_tokens_percent": 100 * sum(occluded) / len(occluded),
        "examples": sorted(range(pool.pairs), key=lambda number: -occluded[number])[:2],
        "shares": {name: _mean_and_error([found[name] for found in by_view if name in found]) for name in names},
    }


def _mean_and_error(values: list[float]) -> dict[str, float]:
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1))
    return {
        "mean": round(mean, 3),
        "standard_error": round(spread / math.sqrt(len(values)), 3),
        "views": len(values),
    }


def sentence(data: dict[str, Any]) -> str:
    """The measurement in one sentence."""
    ways = [data["shares"][f"occluded/visible/{way}/mean of heads"] for way in WAYS]
    arrow, shuffled, opposite = (f"{way['mean']:.1f} ± {way['standard_error']:.1f} %" for way in ways)
    return (
        f"Of the occluded tokens {arrow} have an arrow that ends on a visible one; handed to other occluded tokens the "
        f"same arrows reach {shuffled}, pointing the other way {opposite}."
    )


def draw(data: dict[str, Any], path: Path, settings: Settings) -> None:
    """The two pairs with most occlusion: arrows of occluded tokens, and the x of all arrows from red to blue."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    network = checkpoint.load(data["network"]).to(settings.device).eval()
    size = (data["size"][0], data["size"][1])
    pool = render_pool(PRESETS[data["scenes"]], size, data["pairs"], SEED, settings.device, settings.pool_folder)
    figure, axes = pyplot.subplots(2, 2, figsize=(13, 6.9), layout="constrained")
    for (picture, map_), number in zip(axes, data["examples"]):
        batch = pool.take(torch.tensor([number], device=settings.device))
        view = views_of(network, batch)[0]
        offsets = (TOKEN * view.arrows.mean(2)).cpu()
        image = batch.image0[0].permute(1, 2, 0).cpu() / 255
        assert batch.occluded0 is not None
        tinted = torch.where(batch.occluded0[0, ..., None].cpu(), image * 0.5 + torch.tensor([0.5, 0.0, 0.35]), image)
        picture.imshow(tinted)
        rows, columns = torch.nonzero(view.occluded.cpu()[::3, ::3]).T * 3
        u, v = offsets[rows, columns].unbind(-1)
        picture.quiver(
            columns * TOKEN + 2,
            rows * TOKEN + 2,
            u,
            v,
            angles="xy",
            scale_units="xy",
            scale=1,
            color="gold",
            width=0.0018,
        )
        picture.set_title(f"pair {number}, left view: occluded pixels pink, arrows of their tokens (mean of heads)")
        limit = float(offsets[..., 0].abs().quantile(0.98))
        shown = map_.imshow(offsets[..., 0], cmap="RdBu", vmin=-limit, vmax=limit)
        map_.contour(view.occluded.cpu(), [0.5], colors="black", linewidths=0.5)
        map_.set_title("x of the arrows, px; black: occlusion")
        figure.colorbar(shown, ax=map_, shrink=0.8)
        for axis in (picture, map_):
            axis.set_xticks([])
            axis.set_yticks([])
    figure.suptitle(sentence(data), fontsize=10)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=90)
    pyplot.close(figure)
