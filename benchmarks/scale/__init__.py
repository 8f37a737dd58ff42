"""Training on many processes: what it would cost on up to 1 000 GPUs."""
