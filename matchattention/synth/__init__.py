"""Rendered scenes with exact labels, from a seed to a batch."""
