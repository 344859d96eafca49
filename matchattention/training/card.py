"""What a checkpoint says about itself: data, their licences, recipe, measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matchattention.models import checkpoint
from matchattention.training.recipe import Preset
from matchattention.training.state import Counters

OURS = "Apache-2.0"
# Where a dataset states a licence; the others have terms of their own, which only their owners can tell.
DATA_LICENSES = {
    "kitti2012": "CC BY-NC-SA 3.0",
    "kitti2015": "CC BY-NC-SA 3.0",
    "kitti2012-flow": "CC BY-NC-SA 3.0",
    "kitti2015-flow": "CC BY-NC-SA 3.0",
    "vkitti2": "CC BY-NC-SA 3.0",
    "eth3d": "CC BY-NC-SA 4.0",
    "spring": "CC BY 4.0",
    "spring-stereo": "CC BY 4.0",
}
UNKNOWN = "not stated: ask the data's owner"


def photo_bank_state(preset: Preset) -> str:
    """Whether scenes had photographs: without the bank a training sees other pictures."""
    kinds = {source.kind for source in preset.sources}
    if not kinds & {"scenes", "photos", "moving-photos"}:
        return "not used"
    from matchattention.synth.photos.photo_bank import is_there

    named = any(source.kind != "scenes" and source.preset for source in preset.sources)
    return "used" if named or is_there() else "absent: scenes had procedural textures only"


def data_licenses(preset: Preset, given: str | None = None) -> dict[str, str]:
    """Licence of each source of pairs."""
    found = {}
    for source in preset.sources:
        if source.kind == "data":
            name = source.preset.partition(":")[0]
            found[f"{name}:{Path(source.preset.partition(':')[2]).name}"] = given or DATA_LICENSES.get(
                source.dataset, UNKNOWN
            )
        else:
            found[source.kind] = f"{OURS} (rendered)"
    return found


def weights_license(name: str | None) -> str | None:
    """Licence of a shipped model or a file; None for no weights."""
    if name is None:
        return None
    path = checkpoint.shipped().get(name, Path(name))
    if path.suffix != ".safetensors" or not path.is_file():
        return UNKNOWN
    return str(checkpoint.read_header(path)[1].get("license", UNKNOWN))


def license_of(preset: Preset, data: dict[str, str]) -> str:
    """The licence of the weights: ours only where nobody else's data or weights went in."""
    others = [f"{name} ({text})" for name, text in data.items() if not text.startswith(OURS)]
    teacher = None if preset.distillation is None else preset.distillation.teacher
    for what, name in (("starting weights", preset.start), ("teacher", teacher)):
        terms = weights_license(name)
        if terms is not None and terms != OURS:
            others.append(f"{what} {Path(str(name)).name} ({terms})")
    return OURS if not others else f"subject to the terms of what it was trained on: {'; '.join(others)}"


def make_card(
    preset: Preset,
    counters: Counters,
    before: dict[str, float],
    validation: dict[str, float],
    data_license: str | None = None,
) -> dict[str, Any]:
    """Everything a checkpoint of a training says, as it is stored in the file."""
    data = data_licenses(preset, data_license)
    return {
        "license": license_of(preset, data),
        "data": data,
        "photo_bank": photo_bank_state(preset),
        "recipe": preset.to_dict(),
        "steps": counters.steps,
        "pairs": counters.samples,
        "training_seconds": round(counters.seconds),
        "validation_before": before,
        "validation": validation,
    }
