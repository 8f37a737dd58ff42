"""The benchmarks of other equivariant networks: our models with their samples, steps and batches."""
