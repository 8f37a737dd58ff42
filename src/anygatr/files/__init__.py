"""Files: written whole or not at all, and not believed when they ask for more than they hold."""
