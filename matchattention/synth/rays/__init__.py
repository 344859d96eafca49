"""Rays against primitives, and what they see: casting, shading, labels."""
