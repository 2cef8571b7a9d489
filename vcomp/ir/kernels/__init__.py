"""Loops over topics, systems and rankings, compiled by numba; imported by file within ir."""
