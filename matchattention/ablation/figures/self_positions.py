"""Figure 4: where tokens look in their own view, and whether occluded ones look at visible ones.

The renderer knows what is occluded and which surface a hidden pixel lies on, so the paper's observation becomes a
measurement: the share of occluded tokens whose arrow ends on a visible token, beside the share that the same arrows
reach when they are handed to other occluded tokens, when they point the other way, and without any. The attention sees
a window around the arrow's end, so what that window holds is counted, too.
"""

from __future__ import annotations

import itertools
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
KINDS = ("occluded", "outside", "hidden")
GOALS = ("towards the nearest", "towards the nearest of its surface")
WAYS = ("arrow", "shuffled", "opposite", "none")


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


def seen(view: View, arrows: Tensor, window: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """As `reached`, for any token of the window that the operator places around an arrow's end."""
    corner = arrows.floor()
    visible = torch.zeros_like(view.occluded)
    same = torch.zeros_like(view.occluded)
    for dy, dx in itertools.product(_offsets(window[0]), _offsets(window[1])):
        found = reached(view, corner + torch.tensor([dx, dy], device=arrows.device))
        visible, same = visible | found[0], same | found[1]
    return visible, same


def _offsets(length: int) -> range:
    """Tokens of an axis of the window, from the one at or before the arrow's end; one row stays where it is."""
    return range(1) if length == 1 else range(1 - length // 2, length // 2 + 1)


def towards_visible(view: View, arrows: Tensor, same_surface: bool) -> tuple[Tensor, Tensor]:
    """(h, w) bool each: does an arrow point to the side of its row where the nearest visible token is; is there one.

    With ``same_surface`` only visible tokens count whose disparity is that of the arrow's own token.
    """
    width = view.occluded.shape[1]
    place = torch.arange(width, device=arrows.device)
    goals = (view.known & ~view.occluded).unsqueeze(1).expand(-1, width, -1)  # (h, from, to)
    if same_surface:
        goals = goals & ((view.disparity.unsqueeze(1) - view.disparity.unsqueeze(2)).abs() < SAME_SURFACE)
    way = (place - place.unsqueeze(1)).expand_as(goals)
    never = torch.full_like(way, 2 * width)
    to_left = torch.where(goals & (way < 0), -way, never).amin(2)
    to_right = torch.where(goals & (way > 0), way, never).amin(2)
    return (arrows[..., 0] < 0) == (to_left < to_right), to_left != to_right


def shares_of(view: View, window: tuple[int, int], generator: torch.Generator) -> dict[str, float] | None:
    """Per cent of the occluded tokens of one view, by "what/way/which"; None where there are too few."""
    found: dict[str, float] = {}
    for kind, chosen in zip(KINDS, (view.occluded, view.outside, view.occluded & ~view.outside)):
        chosen = chosen & view.known
        if chosen.sum() < LEAST_TOKENS:
            if kind == "occluded":
                return None
            continue
        for which, arrows in _which_arrows(view).items():
            for way in WAYS:
                changed = _changed(arrows, chosen, way, generator)
                for prefix, hits in (("", reached(view, changed)), ("window sees ", seen(view, changed, window))):
                    found[f"{kind}/{prefix}visible/{way}/{which}"] = _share(hits[0], chosen)
                    found[f"{kind}/{prefix}same surface/{way}/{which}"] = _share(hits[1], chosen)
            for goal in GOALS:
                right_side, decided = towards_visible(view, arrows, same_surface=goal == GOALS[1])
                if (chosen & decided).sum() >= LEAST_TOKENS:
                    found[f"{kind}/{goal}/arrow/{which}"] = _share(right_side, chosen & decided)
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
    if way == "none":
        return torch.zeros_like(arrows)
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
    window = network.config.windows[-1]
    by_view: list[dict[str, float]] = []
    occluded: list[float] = []
    for number, batch in enumerate(pool.batches(1)):
        views = views_of(network, batch)
        occluded.append(sum(float(view.occluded.float().mean()) for view in views) / len(views))
        by_view += [found for view in views if (found := shares_of(view, window, generator)) is not None]
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
    """The measurement in a few words."""
    shares = data["shares"]
    reach = [_said(shares[f"occluded/same surface/{way}/mean of heads"]) for way in WAYS]
    ends = [_said(shares[f"occluded/visible/{way}/mean of heads"]) for way in WAYS]
    sides = {kind: shares.get(f"{kind}/{GOALS[1]}/arrow/mean of heads") for kind in KINDS}
    return (
        f"Mean arrow of an occluded token ends on a visible one: {ends[0]} (handed to others {ends[1]}, reversed "
        f"{ends[2]}); on one of the same surface: {reach[0]} ({reach[1]}, {reach[2]}).\nIt points to the side of its "
        "row where the nearest visible token of its surface is: "
        + ", ".join(f"{kind} {_said(share)}" for kind, share in sides.items() if share)
        + "."
    )


def _said(share: dict[str, float]) -> str:
    return f"{share['mean']:.1f} ± {share['standard_error']:.1f} %"


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
        picture.set_title(f"pair {number}, left view; occluded pixels pink, arrows of their tokens")
        limit = float(offsets[..., 0].abs().quantile(0.98))
        shown = map_.imshow(offsets[..., 0], cmap="RdBu", vmin=-limit, vmax=limit)
        map_.contour(view.occluded.cpu(), [0.5], colors="black", linewidths=0.5)
        map_.set_title("x of the mean arrow, px; black: outline of occlusion")
        figure.colorbar(shown, ax=map_, shrink=0.8)
        for axis in (picture, map_):
            axis.set_xticks([])
            axis.set_yticks([])
    figure.suptitle(sentence(data), fontsize=9)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=90)
    pyplot.close(figure)
