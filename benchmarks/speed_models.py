"""Forwards to its new home for tests/nn/test_memory.py."""

from benchmarks.speed.networks.contestants import Configuration, contestant

__all__ = ["Configuration", "contestant"]
