"""The artery experiment of the paper and the generator of its data."""
