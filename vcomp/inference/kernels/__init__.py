"""Compiled loops over intervals, rows and refits; each file is imported by its own name."""
