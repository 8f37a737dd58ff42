"""Everything that is measured: run a command from the repository's root, as in `python -m benchmarks.speed.run`."""
