"""Fused kernels in C for the CPU: csrc/ has the C, the modules here build, load and call it."""
