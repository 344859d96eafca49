"""Files in, files out: images, fields, datasets, and the batch that trainings see."""
