"""Objects of R^d as multivectors and back, one file per family; `Geometry` offers every function here as a method."""
