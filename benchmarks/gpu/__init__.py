"""GPU accounts on a machine without one: registers of compiled kernels, launches, and a cost model."""
