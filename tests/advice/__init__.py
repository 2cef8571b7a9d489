"""Advice in errors, warnings and notes: each is followed, and leads to a right result."""
