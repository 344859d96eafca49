"""Times, memory and FLOPs of operator, network and training step."""
