"""The training objective of the paper's section 3.3, stereo and flow alike, one function a term.

Every term is a mean over the pixels or tokens with ground truth, in full-resolution px (the cross-entropy
in nats). Nothing synchronises with the host, so that the loss can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from matchattention.data.batch import Batch
from matchattention.layers.tokens import pixel_grid, swap_views
from matchattention.training.targets import (
    Truth,
    at_token_centres,
    in_view,
    matching_target,
    sample_bilinear,
    stacked_truth,
)


class StepLike(Protocol):
    """A supervised field inside the network; `matchattention.models` has the class."""

    @property
    def scale(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def position(self) -> Tensor: ...


class InitialLike(Protocol):
    """The network's estimate at 1/32."""

    @property
    def position(self) -> Tensor: ...
    @property
    def log_matching(self) -> Tensor | None: ...


class MatchesLike(Protocol):
    """What a network returns: everything the loss looks at."""

    @property
    def field(self) -> Tensor: ...
    @property
    def steps(self) -> Sequence[StepLike]: ...
    @property
    def initial(self) -> InitialLike: ...


@dataclass(frozen=True)
class LossConfig:
    """Weights and thresholds of the objective.

    Attributes:
        final_weight: Weight of the full-resolution L1.
        scale_weight: Weight of each scale's mean over its supervised fields.
        initial_weight: Weight of the cross-entropy at 1/32.
        first_step_weight: Weight of the first supervised field relative to the last one; between them
            the weights grow exponentially. They are normalised within each scale.
        consistency_weight: The paper's epsilon, relative to the cross branch's L1.
        mask_occlusions: Whether the cross branch is supervised inside its online mask only; without it (the
            ablation "no occlusion handling") everywhere, and without the consistency term.
        consistency_threshold: The paper's A, in tokens of a field's own scale: one image pixel would
            mask almost everything at 1/32.
        laplace_width: Width of the matching target's modes, tokens of 1/32.
        centre_share: Share of the centre pixel in a token's matching target.
        target_samples: Pixels per token side the rest of the target is built from.
    """

    final_weight: float = 1.0
    scale_weight: float = 0.3
    initial_weight: float = 2.0
    first_step_weight: float = 0.2
    consistency_weight: float = 0.01
    mask_occlusions: bool = True
    consistency_threshold: float = 1.0
    laplace_width: float = 0.5
    centre_share: float = 0.8
    target_samples: int = 8


def masked_mean(values: Tensor, mask: Tensor, dims: tuple[int, ...] | None = None) -> Tensor:
    """Mean of ``values`` where ``mask``, zero when nothing is; unmasked NaNs do not leak."""
    kept = torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))
    if dims is None:
        return kept.sum() / mask.sum().clamp(min=1)
    return kept.sum(dims) / mask.sum(dims).clamp(min=1)


def forward_backward(position: Tensor) -> tuple[Tensor, Tensor]:
    """How far a match's own match lies from where it started.

    Both views' values carry gradients, the place where the other view is read does not: across a depth
    edge the other field's slope would push matches the wrong way.

    Args:
        position: (2B, h, w, 2) relative positions in tokens, views stacked.

    Returns:
        The distance (2B, h, w) in tokens, differentiable, and whether the match is in view (2B, h, w).
    """
    height, width = position.shape[1:3]
    match = position.detach() + pixel_grid(height, width, position.device)
    back = sample_bilinear(swap_views(position), match)
    return (position + back).abs().sum(-1), in_view(match)


def non_occluded(distance: Tensor, visible: Tensor, threshold: float) -> Tensor:
    """The online mask M_noc: consistent within ``threshold`` tokens and in view. Carries no gradient."""
    return visible & (distance.detach() <= threshold)


def self_terms(positions: Tensor, truth: Tensor, valid: Tensor, scale: int) -> Tensor:
    """Plain L1 of self-branch fields, everywhere, so that occluded regions are supervised too.

    Args:
        positions: (S, 2B, h, w, 2) tokens.
        truth: (2B, h, w, 2) px.
        valid: (2B, h, w) bool.
        scale: Pixels per token.

    Returns:
        (S,) px.
    """
    error = (positions * scale - truth).abs().sum(-1)
    return masked_mean(error, valid.expand_as(error), (1, 2, 3))


def cross_terms(
    positions: Tensor, truth: Tensor, valid: Tensor, scale: int, threshold: float
) -> tuple[Tensor, Tensor, Tensor]:
    """L1 and consistency of cross-branch fields inside their online non-occlusion masks.

    Both are divided by the number of valid tokens rather than of unmasked ones: early in training few
    tokens are consistent, and those few should not carry the weight of all.

    Args:
        positions: (S, 2B, h, w, 2) tokens.
        truth: (2B, h, w, 2) px.
        valid: (2B, h, w) bool.
        scale: Pixels per token.
        threshold: Largest forward-backward distance of a visible token, tokens.

    Returns:
        L1 (S,) px, consistency (S,) px, and the share of valid tokens inside the mask (S,).
    """
    steps = positions.shape[0]
    # Views are the leading axis of `forward_backward`; the steps ride along on the next one.
    by_view = positions.transpose(0, 1).flatten(0, 1)  # (2B S, h, w, 2)
    distance, visible = forward_backward(by_view)
    mask = non_occluded(distance, visible, threshold).unflatten(0, (-1, steps)).transpose(0, 1)
    distance = distance.unflatten(0, (-1, steps)).transpose(0, 1)
    mask = mask & valid
    count = valid.sum().clamp(min=1)
    zero = torch.zeros((), device=positions.device)
    error = (positions * scale - truth).abs().sum(-1)
    l1 = torch.where(mask, error, zero).sum((1, 2, 3)) / count
    consistency = torch.where(mask, distance * scale, zero).sum((1, 2, 3)) / count
    return l1, consistency, mask.sum((1, 2, 3)) / count


def final_term(field: Tensor, truth: Tensor, valid: Tensor) -> Tensor:
    """L1 of the full-resolution field (2B, H, W, 2) in px."""
    return masked_mean((field.float() - truth).abs().sum(-1), valid)


def _cross_entropy(mass: Tensor, dustbin: Tensor, known: Tensor, log_probability: Tensor) -> Tensor:
    """Sum over known tokens; ``log_probability`` is (…, cells + 1), its last entry the dustbin."""
    target = torch.cat((mass, dustbin.unsqueeze(-1)), dim=-1)
    # Forbidden matches have log probability -inf and target 0; the product would be NaN.
    wanted = target > 0
    log_probability = torch.where(wanted, log_probability, torch.zeros((), device=target.device))
    entropy = -(target * log_probability).sum(-1)
    return torch.where(known, entropy, torch.zeros((), device=target.device)).sum()


def initial_term(log_matching: Tensor, truth: Truth, scale: int, config: LossConfig) -> Tensor:
    """Cross-entropy of the coarse matching against the multi-modal target, rows and columns alike.

    Args:
        log_matching: Stereo (B, h, w+1, w+1), flow (B, hw+1, hw+1): log transport, rows view 0,
            columns view 1, the last of each the dustbin.
        truth: Padded ground truth, (2B, h·scale, w·scale).
        scale: Pixels per token.
        config: Widths and shares of the target.

    Returns:
        Nats per token, averaged over the known tokens of both views.
    """
    log_matching = log_matching.float()
    half = truth.valid.shape[0] // 2
    columns = truth.valid.shape[2] // scale
    stereo = log_matching.dim() == 4
    # View 0 looks to the left only, view 1 to the right: a disparity is never negative.
    lower = torch.ones(columns, columns, dtype=torch.bool, device=log_matching.device).tril()
    total = torch.zeros((), device=log_matching.device)
    count = torch.zeros((), device=log_matching.device)
    for view in (0, 1):
        part = slice(view * half, (view + 1) * half)
        target = matching_target(
            truth.field[part],
            truth.valid[part],
            truth.occluded[part],
            scale=scale,
            allowed=(lower if view == 0 else lower.T) if stereo else None,
            width=config.laplace_width,
            centre_share=config.centre_share,
            samples=config.target_samples,
        )
        log_probability = log_matching if view == 0 else log_matching.transpose(-1, -2)
        log_probability = log_probability[..., :-1, :]  # the bin's own row asks for nothing
        if stereo:
            mass, dustbin, known = target.mass.squeeze(-2), target.dustbin, target.known
        else:
            mass = target.mass.flatten(3).flatten(1, 2)
            dustbin, known = target.dustbin.flatten(1), target.known.flatten(1)
        total = total + _cross_entropy(mass, dustbin, known, log_probability)
        count = count + known.sum()
    return total / count.clamp(min=1)


def step_weights(scales: Sequence[int], first: float) -> list[float]:
    """Exponentially growing weights of the supervised fields, normalised to sum to 1 within each scale.

    Args:
        scales: The scale of each field in order.
        first: Weight of the first field relative to the last, before normalisation.
    """
    last = max(len(scales) - 1, 1)
    raw = [first ** (1 - index / last) for index in range(len(scales))]
    totals = {scale: sum(w for w, s in zip(raw, scales) if s == scale) for scale in scales}
    return [weight / totals[scale] for weight, scale in zip(raw, scales)]


def _weighted(weights: Sequence[float], terms: Tensor) -> Tensor:
    """Sum of terms (S,) by weights; numbers, not a tensor of them, because a graph's capture allows no copy."""
    return torch.stack([weight * term for weight, term in zip(weights, terms.unbind())]).sum()


def total_loss(matches: MatchesLike, batch: Batch, config: LossConfig) -> dict[str, Tensor]:
    """All terms of the objective.

    Args:
        matches: The network's output for the batch.
        batch: Images and ground truth of both views.
        config: Weights.

    Returns:
        Scalars by name: ``loss`` is the weighted sum and carries the gradient; ``final`` (px),
        ``initial`` (nats), ``self``, ``cross``, ``consistency`` (px, weighted means over the fields)
        and ``visible`` (share inside the online mask) are detached, for the log.
    """
    steps = matches.steps
    coarsest = matches.initial.position
    height, width = coarsest.shape[1] * 32, coarsest.shape[2] * 32
    truth = stacked_truth(batch, height, width)
    device = truth.field.device
    weights = step_weights([step.scale for step in steps], config.first_step_weight)

    sums = {name: torch.zeros((), device=device) for name in ("self", "cross", "consistency", "visible")}
    scales = sorted({step.scale for step in steps}, reverse=True)
    # One call per scale and kind keeps the number of kernels independent of the network's depth.
    for scale in scales:
        field, valid = at_token_centres(truth, scale)
        for kind in ("self", "cross"):
            chosen = [i for i, step in enumerate(steps) if step.scale == scale and step.kind == kind]
            if not chosen:
                continue
            positions = torch.stack([steps[i].position.float() for i in chosen])
            weight = [weights[i] for i in chosen]
            if kind == "self" or not config.mask_occlusions:
                terms = self_terms(positions, field, valid, scale)
                sums[kind] = sums[kind] + _weighted(weight, terms)
                continue
            l1, consistency, visible = cross_terms(positions, field, valid, scale, config.consistency_threshold)
            sums["cross"] = sums["cross"] + _weighted(weight, l1)
            sums["consistency"] = sums["consistency"] + _weighted(weight, consistency)
            sums["visible"] = sums["visible"] + visible.mean() / len(scales)

    top, right = height - batch.field0.shape[1], width - batch.field0.shape[2]
    inner = (slice(None), slice(top, None), slice(0, width - right))
    final = final_term(matches.field, truth.field[inner], truth.valid[inner])
    per_step = sums["self"] + sums["cross"] + config.consistency_weight * sums["consistency"]
    loss = config.final_weight * final + config.scale_weight * per_step
    initial = torch.zeros((), device=device)
    if matches.initial.log_matching is not None:
        initial = initial_term(matches.initial.log_matching, truth, 32, config)
        loss = loss + config.initial_weight * initial
    logged = {"final": final, "initial": initial, **sums}
    return {"loss": loss, **{name: value.detach() for name, value in logged.items()}}
