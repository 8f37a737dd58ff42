"""The peers' own benchmarks, made from their published definitions."""
