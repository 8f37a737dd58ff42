"""The n-body experiments of the paper and the generator of their data."""
