"""What solving for every equivariant map costs."""
