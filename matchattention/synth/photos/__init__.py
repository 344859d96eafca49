"""Photographs as textures, and pairs made from single photographs."""
