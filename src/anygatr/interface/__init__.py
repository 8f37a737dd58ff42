"""Coordinates in, coordinates out: named fields, their tokens, and the network between them."""
