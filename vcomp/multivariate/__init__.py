"""Multivariate generalizability theory: several dependent scores of the same objects."""
