"""Data to begin with: two evaluations made for vcomp, and the tables of the papers behind it.

:func:`available` lists them, :func:`load` returns one. How each was made, from what and under
which licence, is written in ``PROVENANCE.md`` beside the files.
"""

from vcomp.data import Dataset, available, load

__all__ = ["Dataset", "available", "load"]
