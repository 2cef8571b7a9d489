"""Results as JSON text: writing, reading, and values that JSON does not have."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from vcomp.exceptions import DataError
from vcomp.model.record import FitRecord
from vcomp.statistics.batches import replacing

__all__ = [
    "read_json",
    "read_stored",
    "write_json",
]


def write_json(record: FitRecord, path: str | Path | None) -> str:
    """Return `record` as JSON text, and write it to `path` if there is one.

    Raises
    ------
    DataError
        If the file cannot be written; an existing file is then unchanged.
    """
    # JSON has no infinity; a constant response has an infinite likelihood.
    text = json.dumps(_without_infinity(record.to_json()), allow_nan=False, ensure_ascii=False)
    if path is not None:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return text


def read_json(source: str | Path) -> FitRecord:
    """Return the record in a JSON text or file.

    Raises
    ------
    DataError
        If it is not JSON, not a stored result, or the file is not there.
    """
    return FitRecord.from_json(_with_infinity(read_stored(source)))


def read_stored(source: str | Path) -> Any:
    """Return the content of a JSON text or file, not yet checked to be a result.

    Raises
    ------
    DataError
        If it is not JSON, or the file is not there.
    """
    if not isinstance(source, str | Path):
        raise DataError(f"a stored result is JSON text or a file, not {type(source).__name__}")
    text = str(source)
    if not text.strip():
        raise DataError("the text of the stored result is empty")
    if isinstance(source, Path) or not text.lstrip().startswith("{"):
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot read {str(source)[:200]!r}: {error}") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"this is not JSON: {error}; a stored result is what res.to_json() or "
            "'vcomp fit … --json FILE' wrote"
        ) from None


def _without_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_infinity(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(v) for v in value]
    if isinstance(value, float) and math.isinf(value):
        return {"infinite": 1 if value > 0 else -1}
    return value


def _with_infinity(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"infinite"}:
            return math.copysign(math.inf, value["infinite"])
        return {key: _with_infinity(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_with_infinity(v) for v in value]
    return value
