"""Where rows come from: frames, dicts, Arrow streams, queries, CSV and Parquet files."""

from vcomp.data import Source, alike_levels, open_source, spool, unite_categories

__all__ = ["Source", "alike_levels", "open_source", "spool", "unite_categories"]
