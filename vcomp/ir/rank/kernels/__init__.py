"""Loops over pairs of systems and draws, compiled by numba; entered by file within rank."""
