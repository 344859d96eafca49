"""From image files to matches: the predictor, video, and the guard that makes everything fit."""
