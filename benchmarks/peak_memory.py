"""Forwards to its new home for tests/nn/test_memory.py."""

from benchmarks.harness.peak_memory import growth

__all__ = ["growth"]
