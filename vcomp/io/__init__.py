"""Where rows come from: frames, dicts, Arrow streams, queries, CSV and Parquet files."""

from vcomp.io.alike import alike_levels
from vcomp.io.source import Source, open_source
from vcomp.io.spool import spool
from vcomp.io.unite import unite_categories

__all__ = ["Source", "alike_levels", "open_source", "spool", "unite_categories"]
