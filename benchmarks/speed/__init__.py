"""Training steps and inferences of our networks: against peers, by kernel, by operation, with fewer grades."""
