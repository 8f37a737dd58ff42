"""Data sets of the lab: what is read or made, as plain arrays; nothing here builds or trains a network."""
