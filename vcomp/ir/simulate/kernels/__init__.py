"""Loops over simulated scores, compiled by numba; entered by file within simulate."""
