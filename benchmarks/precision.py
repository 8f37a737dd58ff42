"""Forwards to its new home for tests/test_precision.py."""

from benchmarks.numerics.precision import errors

__all__ = ["errors"]
