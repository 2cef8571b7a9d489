"""Loops over pairs of systems and draws, compiled by numba; imported by file within rank."""
