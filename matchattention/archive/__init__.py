"""Predicting archives: pairs by the million, results in shards, on as many machines as Ray has."""
