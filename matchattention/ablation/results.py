"""The file that an ablation writes as it goes and continues from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matchattention.ablation.budget import Budget
from matchattention.data.atomic import replacing
from matchattention.data.reading import read_json
from matchattention.errors import InputError

FORMAT = "matchattention-ablations-1"


class Results:
    """Runs and costs so far.

    Attributes:
        data: As in the file: "budget", "real_pairs", "costs" by row, "runs", "failures".
    """

    def __init__(self, budget: Budget, real_pairs: list[str]) -> None:
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "budget": budget.to_dict(),
            "real_pairs": real_pairs,
            "costs": {},
            "runs": [],
            "failures": [],
        }

    def take_in(self, path: Path) -> None:
        """Add what a file holds that is not here yet.

        Raises:
            InputError: It was made under another budget.
        """
        found = read_results(path)
        for name in ("budget", "real_pairs"):
            if found[name] != self.data[name]:
                raise InputError(f"{path} was made with {_difference(found[name], self.data[name])}: {_ADVICE}.")
        self.data["costs"] = found["costs"] | self.data["costs"]
        here = self.done()
        self.data["runs"] += [run for run in found["runs"] if (run["row"], run["seed"]) not in here]
        self.data["failures"] += [entry for entry in found["failures"] if entry not in self.data["failures"]]

    def done(self) -> set[tuple[str, int]]:
        """(row, seed) of the trainings that are through."""
        return {(run["row"], run["seed"]) for run in self.data["runs"]}

    def write(self, path: Path) -> None:
        """Replace the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_text(dumps(self.data) + "\n")


_ADVICE = "choose another --output, or the settings it was made with"


def _difference(theirs: Any, ours: Any) -> str:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        names = [name for name in sorted(theirs | ours) if theirs.get(name) != ours.get(name)]
        return ", ".join(f"{name} {theirs.get(name)} instead of {ours.get(name)}" for name in names)
    return "other real pairs"


def read_results(path: Path) -> dict[str, Any]:
    """The contents of a results file."""
    try:
        data = read_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as results of `matchattention ablate`: {error}.") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path} holds no results of `matchattention ablate`.")
    return data


def dumps(data: dict[str, Any]) -> str:
    """JSON with a line for each run, so that a difference between two files can be read."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {_lines(value)}" for name, value in data.items()) + "\n}"


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return "[\n" + ",\n".join(_strict(item) for item in value) + "\n]"
    if isinstance(value, dict) and value and all(isinstance(item, dict) for item in value.values()):
        return "{\n" + ",\n".join(f"{json.dumps(name)}: {_strict(item)}" for name, item in value.items()) + "\n}"
    return _strict(value)


def _strict(value: Any) -> str:
    return json.dumps(value, allow_nan=False)
