"""How PyTorch's CPU threads wait for each other.

OpenMP's threads spin while they wait. On a machine that does anything else besides, they take the cores from the
threads that work: a pair took 5.8 to 10.9 s spinning and 1.7 to 2.0 s asleep. On an idle machine sleep costs a tenth.
The OpenMP library reads its settings when it is loaded, so this must happen before PyTorch is imported.
"""

from __future__ import annotations

import os
import sys

# Any of these says that somebody has chosen already.
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def wait_asleep() -> None:
    """Let threads sleep while they wait, unless the environment says otherwise or PyTorch is loaded already."""
    if "torch" not in sys.modules and not any(name in os.environ for name in SETTINGS):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"


def in_words() -> str:
    """How threads wait here, for `matchattention doctor`."""
    chosen = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    if os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE":
        return "threads sleep while they wait (OMP_WAIT_POLICY=PASSIVE)"
    if chosen:
        return f"threads wait as told by {', '.join(chosen)}"
    return (
        "threads spin while they wait, because PyTorch was imported before matchattention: on a busy machine several "
        "times slower; set OMP_WAIT_POLICY=PASSIVE or import matchattention first"
    )
