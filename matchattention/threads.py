"""How PyTorch's CPU threads wait for each other.

OpenMP's threads spin while they wait. On a machine that does anything else besides, they take the cores from the
threads that work: a pass took 2.1 s with one of two cores busy, and 0.9 s with threads that sleep at once. On an idle
machine that sleep made 0.76 s of 0.50 s, because most waits are shorter than waking is. So threads look for work
a thousand times, then sleep: 1.0 s and 0.57 s. (Passes of `rt` at 1024x512, which `matchattention bench network` times
with whatever these variables say.)
The OpenMP library reads its settings when it is loaded, so this must happen before PyTorch is imported.
"""

from __future__ import annotations

import os
import sys

# Sleep at once; but PyTorch's usual library, GNU's, looks so many times before.
BRIEFLY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
# Any of these says that somebody has chosen already.
SETTINGS = (*BRIEFLY, "KMP_BLOCKTIME")


def wait_briefly() -> None:
    """Let threads sleep soon while they wait, unless the environment says otherwise or PyTorch is loaded already."""
    if "torch" not in sys.modules and not any(name in os.environ for name in SETTINGS):
        os.environ |= BRIEFLY


def in_words() -> str:
    """How threads wait here, for `matchattention doctor`."""
    chosen = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    if chosen == BRIEFLY:
        return "threads look for work a thousand times, then sleep"
    if chosen:
        return f"threads wait as told by {', '.join(f'{name}={value}' for name, value in chosen.items())}"
    return (
        "threads spin while they wait, because PyTorch was imported before matchattention: on a busy machine twice "
        "as slow; import matchattention first"
    )
