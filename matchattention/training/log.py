"""What a training tells: a line for people, JSON lines for scripts, TensorBoard where it is installed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def duration(seconds: float) -> str:
    """``75`` s as ``1:15``, hours where there are any."""
    minutes, rest = divmod(max(int(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class TrainingLog:
    """Writes ``log.jsonl``, TensorBoard curves and progress lines; silent on all ranks but the first."""

    def __init__(self, folder: Path, speaking: bool = True, tensorboard: bool = True) -> None:
        self.speaking = speaking
        self._file = None
        self._curves: Any = None
        if not speaking:
            return
        folder.mkdir(parents=True, exist_ok=True)
        _drop_half_a_line(folder / "log.jsonl")
        self._file = (folder / "log.jsonl").open("a", buffering=1)
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter

                self._curves = SummaryWriter(str(folder / "tensorboard"))
            except Exception:  # an optional package, broken as often as missing
                self._curves = None

    def record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """One JSON line; numbers also become curves named ``kind/name``."""
        if self._file is None:
            return
        rounded = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in values.items()}
        self._file.write(json.dumps({"kind": kind, "step": step, "time": round(time.time(), 1), **rounded}) + "\n")
        if self._curves is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._curves.add_scalar(f"{kind}/{name}", value, step)

    def say(self, text: str) -> None:
        """A line on standard output."""
        if self.speaking:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        """A line on standard error."""
        if self.speaking:
            print(f"warning: {text}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Write what is left."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._curves is not None:
            self._curves.close()
            self._curves = None


def _drop_half_a_line(path: Path) -> None:
    """A process killed while it wrote leaves a line that is no JSON."""
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])


def progress_line(step: int, time_left: float | None, values: Mapping[str, float]) -> str:
    """What happened since the last line, in one line."""
    left = f"  {duration(time_left)} left" if time_left is not None else ""
    parts = [
        f"step {step}{left}",
        f"{values['samples_per_second']:.0f} pairs/s",
        f"loss {values['loss']:.3f}",
        f"final {values['final']:.3f} px",
        f"initial {values['initial']:.3f}",
        f"self {values['self']:.2f}",
        f"cross {values['cross']:.2f}",
        f"visible {values['visible']:.2f}",
        f"gradient {values['gradient']:.1f}",
        f"rate {values['rate']:.1e}",
    ]
    if values.get("memory_gib"):
        parts.append(f"{values['memory_gib']:.1f} GiB")
    if "host_idle" in values:
        parts.append(f"host idle {100 * values['host_idle']:.0f} %")
    for name in ("silenced", "skipped"):
        if values.get(name):
            parts.append(f"{name} {values[name]:.0f}")
    return "  ".join(parts)
