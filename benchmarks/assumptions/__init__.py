"""Rejection rates of the tests of a diagnosis under the null and under other deviations."""
