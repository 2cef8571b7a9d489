"""Results as JSON, in a text or a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from vcomp.codec import Record, Storable, from_document, to_document
from vcomp.data.written_files import replacing
from vcomp.exceptions import DataError


class InJson:
    """Base of records that are stored as JSON, dataclasses with a ``_FORMAT``."""

    __slots__ = ()

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the values as JSON text, with all digits; also write it to a file.

        Parameters
        ----------
        path : of the file; None writes none. An existing file is replaced when the new one is
            complete

        Raises
        ------
        DataError
            If the file cannot be written.
        """
        record: Any = self
        return write_json(record, path)

    @classmethod
    def from_json(cls, source: str | Path) -> Self:
        """Return the values from JSON text or from the file that :meth:`to_json` wrote.

        Parameters
        ----------
        source : JSON text, or path of a file

        Raises
        ------
        DataError
            If it is not such a text or file.
        """
        record: Any = cls
        found: Self = read_json(record, source)
        return found


def write_json(
    record: Storable, path: str | os.PathLike[str] | None, files: Iterable[Path] = ()
) -> str:
    """Return `record` as JSON text, and write it to `path` if there is one.

    Parameters
    ----------
    record : values of a result
    path : of the file
    files : of the data, none of which is to be replaced

    Raises
    ------
    DataError
        If the file cannot be written; an existing file is then unchanged.
    """
    text = json.dumps(to_document(record), allow_nan=False, ensure_ascii=False)
    if path is not None:
        with replacing(path, files) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return text


def read_json(cls: type[Record], source: str | Path) -> Record:
    """Return the record in a JSON text or file.

    Raises
    ------
    DataError
        If it is not JSON, not such a record, or there is no such file.
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
        found = json.loads(text)
        if "\\u" in text or not text.isascii():
            json.dumps(found, ensure_ascii=False).encode()  # not with half of a character
        return found
    except ValueError as error:  # also of numbers of thousands of digits
        raise DataError(
            f"this is not JSON that vcomp wrote: {error}; a stored result must be written by "
            "res.to_json() or 'vcomp fit … --json FILE'"
        ) from None
