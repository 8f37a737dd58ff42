"""The memory of training steps, for rows that were made without it."""
