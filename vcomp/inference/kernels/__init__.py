"""Loops over intervals and over refits, compiled by numba; entered by file within inference."""
