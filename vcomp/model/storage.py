"""Records of results as JSON text and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vcomp.codec import Record, Storable, from_document, to_document
from vcomp.exceptions import DataError
from vcomp.statistics.batches import replacing


def write_json(record: Storable, path: str | Path | None) -> str:
    """Return `record` as JSON text, and write it to `path` if there is one.

    Raises
    ------
    DataError
        If the file cannot be written; an existing file is then unchanged.
    """
    text = json.dumps(to_document(record), allow_nan=False, ensure_ascii=False)
    if path is not None:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return text


def read_json(cls: type[Record], source: str | Path) -> Record:
    """Return the record in a JSON text or file.

    Raises
    ------
    DataError
        If it is not JSON, not such a record, or the file is not there.
    """
    return from_document(cls, _read(source))


def _read(source: str | Path) -> Any:
    """Return the content of a JSON text or file."""
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
