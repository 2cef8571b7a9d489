"""Types of Arrow that pandas cannot group, and those that are read in their place."""

from __future__ import annotations

from typing import Any


def is_grouped(kind: Any) -> bool:
    """Return whether pandas can sort and group arrays of one of Arrow's types."""
    from pyarrow import types

    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    is_text = types.is_string(kind) or types.is_large_string(kind)
    is_other = types.is_boolean(kind) or types.is_temporal(kind) or types.is_null(kind)
    return (is_number and kind != "halffloat") or is_text or (is_other and not _is_interval(kind))


def _is_interval(kind: Any) -> bool:
    return str(kind) == "month_day_nano_interval"


def in_known_types(table: Any) -> Any:
    """Return a table without runs, half floats, and types that extend Arrow's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for position, column in enumerate(table.schema):
        kind, values = column.type, table.column(position)
        if isinstance(kind, pa.BaseExtensionType) and kind.extension_name != "arrow.uuid":
            stored = [chunk.storage for chunk in values.chunks]
            values = pa.chunked_array(stored, type=kind.storage_type)
            if kind.extension_name == "arrow.bool8":
                values = values.cast(pa.bool_())
        elif pa.types.is_run_end_encoded(kind):
            decoded = [pc.run_end_decode(chunk) for chunk in values.chunks]
            values = pa.chunked_array(decoded, type=kind.value_type)
        elif pa.types.is_float16(kind):
            values = values.cast(pa.float32())
        else:
            continue
        table = table.set_column(position, column.name, values)
    return table
