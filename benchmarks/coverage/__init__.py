"""Coverage of intervals by every method, from simulated data."""
