"""Compiled loops over rows; each file is imported by its own name."""
