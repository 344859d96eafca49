"""Matching over HTTP: the Open Inference Protocol v2 and a plain `POST /depth`.

A request walks through `gate` (token, size, room in the queue), `protocol` or `pictures` (bytes to images),
`batching` (equal sizes in one pass) and back.
"""
