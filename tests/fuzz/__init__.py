"""Fuzzers of everything that reads what others wrote, and of fits."""
