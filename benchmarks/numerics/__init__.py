"""Errors of number formats."""
