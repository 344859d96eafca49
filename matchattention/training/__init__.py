"""Losses, optimizer, schedule and the training loop."""
