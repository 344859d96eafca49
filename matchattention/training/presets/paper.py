"""The paper's training regimes with its numbers (section 4.2 and supplement S2.2).

Steps, batch, crop, datasets, AdamW with weight decay 0.05 and the one-cycle schedule are the paper's. It gives
neither a peak learning rate nor the datasets' shares of a batch; those here are ours.
"""

from __future__ import annotations

from dataclasses import replace

from matchattention.training.optimizer import OptimizerConfig
from matchattention.training.recipe import Preset, SourceConfig, Stage
from matchattention.training.schedule import ScheduleConfig


def _data(shares: dict[str, float]) -> tuple[SourceConfig, ...]:
    return tuple(SourceConfig("data", weight, name) for name, weight in shares.items())


FSD_MIX = {
    "fsd": 10.0,
    "crestereo": 6.0,
    "wmgstereo": 5.0,
    "irs": 4.0,
    "sceneflow/train-final": 4.0,
    "instereo2k/train": 2.0,
    "sintel-stereo/training-final": 1.0,
}

SCENE_FLOW = Preset(
    "the paper's first regime: Scene Flow alone, 200k steps",
    stages=(Stage(512, 768, 32),),
    sources=_data({"sceneflow/train-final": 1.0}),
    optimizer=OptimizerConfig(kind="adamw", weight_decay=0.05, average_decay=0.999),
    schedule=ScheduleConfig(kind="one-cycle", peak=5e-4, warmup_steps=2000),
    minutes=None,
    steps=200_000,
    validation_pairs=0,
)

FINE_TUNED = replace(
    SCENE_FLOW,
    fine_tunes=True,
    steps=100_000,
    schedule=replace(SCENE_FLOW.schedule, peak=1e-4, warmup_steps=1000),
)

PRESETS: dict[str, Preset] = {
    "paper-scene-flow": SCENE_FLOW,
    "paper-mix": replace(
        SCENE_FLOW,
        summary="the paper's second regime: seven datasets (FSD Mix), 1000k steps",
        sources=_data(FSD_MIX),
        steps=1_000_000,
    ),
    "paper-ablation": replace(
        SCENE_FLOW,
        summary="the paper's ablations: FSD alone, 200k steps",
        sources=_data({"fsd": 1.0}),
    ),
    "paper-middlebury": replace(
        FINE_TUNED,
        summary="the paper's fine-tuning for Middlebury, from --start FILE: FSD Mix and Middlebury, 100k steps",
        sources=_data({**FSD_MIX, "middlebury/trainingH": 4.0}),
    ),
    "paper-kitti": replace(
        FINE_TUNED,
        summary="the paper's fine-tuning for KITTI, from --start FILE: KITTI 2012, 2015, Virtual KITTI 2, 100k steps",
        sources=_data({"vkitti2": 4.0, "kitti2012/training": 2.0, "kitti2015/training": 2.0}),
    ),
    "paper-flow": replace(
        SCENE_FLOW,
        summary="the paper's flow regime: Scene Flow, 100k steps",
        model="xl-flow",
        sources=_data({"sceneflow-flow/train-final": 1.0}),
        steps=100_000,
    ),
    "paper-flow-mix": replace(
        FINE_TUNED,
        summary="the paper's flow fine-tuning, from --start FILE: Scene Flow, Sintel, KITTI 2015, HD1K, 100k steps",
        model="xl-flow",
        sources=_data(
            {
                "sceneflow-flow/train-final": 4.0,
                "sintel/training-final": 2.0,
                "kitti2015-flow/training": 1.0,
                "hd1k/training": 1.0,
            }
        ),
    ),
}
