"""Fuzzing, faults and soak: what was tried against the library, how often, and what failed."""
