"""Where there is no GPU, Triton's kernels are tested in its interpreter.

Triton decides this when it is first imported, so it has to be set before any test module is.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
