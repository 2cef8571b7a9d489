"""Where rows come from: frames, dicts, Arrow streams, CSV and Parquet files."""

from vcomp.io.source import Source, open_source

__all__ = ["Source", "open_source"]
