"""Error rates of tests of differences between systems, on simulated collections."""
