"""One training on several processes: which there are, what each of them does, how they agree."""
