"""What maintainers run: never part of the distribution."""
