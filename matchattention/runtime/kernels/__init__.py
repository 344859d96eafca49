"""Triton kernels that only inference uses."""
