"""Blind spots: what each geometry can learn of tasks with closed forms, and what its predictions depend on at the start."""
