"""Tests of vcomp, a folder for each of its packages."""
