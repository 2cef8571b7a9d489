"""Variance components, and what they mean for the test."""

__version__ = "0.1.0"
