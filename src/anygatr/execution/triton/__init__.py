"""The Triton backend: programs on a GPU by kernels that are written or generated from the plans of operations."""
