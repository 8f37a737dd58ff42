"""Artery walls with wall shear stress: read the published set, or make an open one by solving the flow.

`preprocess` reads and prepares a file, `generate` makes one, `surface` reads a user's own walls, `config` holds the
settings of the command line.
"""
