"""Loops over simulated scores, compiled by numba; imported by file within simulate."""
