"""A network for inference on a GPU in about two hundred kernels: whatever lies between two convolutions is one."""
