"""Networks to compare with, one per file; each takes named fields and returns named fields, as `anygatr.model` does."""
