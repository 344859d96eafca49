"""Seeds to batches: drawing ahead, rendering, exporting, statistics."""
