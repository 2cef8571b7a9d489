"""Factorisations, solves and traces on blocks; no statistics here."""
