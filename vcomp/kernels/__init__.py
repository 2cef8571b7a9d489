"""Loops over rows and over sparse blocks, compiled by numba: arrays in, arrays out."""
