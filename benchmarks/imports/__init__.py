"""How long imports take."""
