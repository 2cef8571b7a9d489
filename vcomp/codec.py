"""Dataclasses as JSON: the values that results consist of, as plain dicts and lists, and back.

:func:`read_member` reads what archives of arrays hold.

:func:`to_plain` goes by the values, :func:`from_plain` by the annotations of the fields. JSON has
neither nan nor infinity: nan is null, and infinity ``{"infinite": 1}``. A field whose stored form
differs from its value says so by :func:`stored`.
"""

from __future__ import annotations

import io
import math
import sys
import zipfile
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from vcomp._typing import Json
from vcomp.exceptions import DataError

T = TypeVar("T")

_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors that values of another kind than the stored ones raise."""

_ATOMS = (str, int, NoneType)
"""Types that JSON stores as they are."""


@dataclass(frozen=True, slots=True)
class Format:
    """The head of a stored record.

    Attributes
    ----------
    kind : class of the results that are stored, under the key ``"vcomp"``
    newest : version that is written, under the key ``"format"``; versions from 1 on are read
    words : name of the stored thing in messages
    """

    kind: str
    newest: int
    words: str


class Storable(Protocol):
    """A dataclass with the head under which it is stored."""

    _FORMAT: ClassVar[Format]


Record = TypeVar("Record", bound=Storable)


def stored(
    *,
    keys: tuple[str, ...] = (),
    shape: tuple[str, ...] = (),
    write: Callable[[Any], Any] | None = None,
    read: Callable[[Any, Json], Any] | None = None,
    flat: type | None = None,
) -> dict[str, Any]:
    """Return metadata of a field whose stored form differs from its value.

    Parameters
    ----------
    keys : a tuple is stored as an object with these keys
    shape : arrays have the lengths of these fields of the same object; needed where one may be
        empty, as lists do not keep the shape of an empty matrix
    write : makes what is stored from the value, unless that is None
    read : makes the value from what was stored, unless that is null, and from the whole object
    flat : dataclass whose fields are stored beside those of the whole object
    """
    return {"keys": keys, "shape": shape, "write": write, "read": read, "flat": flat}


def to_plain(value: Any) -> Any:
    """Return dataclasses, mappings, tuples, sets and arrays as dicts and lists for JSON.

    Examples
    --------
    >>> to_plain({"facets": frozenset({"topic", "sys"}), "values": np.array([0.5, np.nan])})
    {'facets': ['sys', 'topic'], 'values': [0.5, None]}
    """
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _written_number(value)
    if isinstance(value, list | tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _written_array(value)
    if is_dataclass(value):
        plain: Json = {}
        for f in fields(value):
            written = _written(f, getattr(value, f.name))
            is_flat = f.metadata and f.metadata["flat"] is not None
            plain |= written if is_flat else {f.name: written}
        return plain
    if isinstance(value, Mapping):
        return {key: to_plain(v) for key, v in value.items()}
    return sorted(value) if isinstance(value, AbstractSet) else value


def from_plain(cls: type[T], plain: Any) -> T:
    """Return the dataclass that :func:`to_plain` made plain; fields left out have their defaults.

    Parameters
    ----------
    cls : of the value
    plain : dicts and lists; arrays may stand in them as they are

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError
        If they do not make such a value.

    Examples
    --------
    >>> from_plain(Format, {"kind": "Study", "newest": 1, "words": "a study"})
    Format(kind='Study', newest=1, words='a study')
    """
    made: Any = cls
    hints, values = _hints(made), {}
    for f in fields(made):
        if f.name in plain or (f.default is MISSING and f.default_factory is MISSING):
            try:
                values[f.name] = _read(f, hints[f.name], plain)
            except _DAMAGE as error:
                error.add_note(f.name)
                raise
    return cls(**values)


def to_document(record: Storable) -> Json:
    """Return a record for JSON, with its head."""
    head = {"vcomp": record._FORMAT.kind, "format": record._FORMAT.newest}
    plain: Json = to_plain(record)
    return head | plain


def from_document(cls: type[Record], document: Any) -> Record:
    """Return the record that :func:`to_document` made plain.

    Raises
    ------
    DataError
        If it is something else, damaged, or a newer version wrote it.
    """
    kind = cls._FORMAT
    if not isinstance(document, dict) or document.get("vcomp") != kind.kind:
        raise DataError(f"this is not {kind.words} that vcomp stored (res.to_json())")
    if document.get("format") not in range(1, kind.newest + 1):
        raise DataError(
            f"the stored result has format {document.get('format')!r}, and this version of "
            f"vcomp reads formats up to {kind.newest}; load it with the version that wrote it"
        )
    try:
        record = from_plain(cls, document)
        check = getattr(
            record, "_check", None
        )  # of records whose values may contradict each other
        if check is not None:
            check()
        return record
    except _DAMAGE as error:
        place = ".".join(reversed(getattr(error, "__notes__", ())))
        raise DataError(
            f"the stored result is incomplete or damaged{f' at {place!r}' * bool(place)}: "
            f"{_damage(error)}"
        ) from None


def _damage(error: BaseException) -> str:
    """Return the fault of a stored value in words."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    if isinstance(error, AttributeError | IndexError) or "zip()" in str(error):
        return "a value of another kind or length than belongs there"
    return str(error)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a member of an archive that vcomp wrote.

    vcomp does not compress members, so that an archive unpacks to no more than its own size.

    Raises
    ------
    ValueError
        If the member is compressed or encrypted, or does not fit into the file.
    KeyError
        If there is no such member.
    """
    member = archive.getinfo(name)
    assert archive.fp is not None
    size = archive.fp.seek(0, io.SEEK_END)
    is_plain = member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1
    if not (is_plain and 0 <= member.file_size == member.compress_size <= size):
        raise ValueError(f"its member {name!r} is compressed or larger than the file")
    return archive.read(member)


def read_array(stored: bytes) -> NDArray[Any]:
    """Return the array in numpy's format that some bytes hold.

    Raises
    ------
    ValueError
        If they hold something else, objects of Python, fewer or more values than their header
        states, or text with characters that do not exist.
    """
    file = io.BytesIO(stored)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    shape, in_columns, dtype = (
        read if version == (1, 0) else np.lib.format.read_array_header_2_0
    )(file)
    if dtype.hasobject:
        raise ValueError("an array holds objects of Python")
    n_values = math.prod(shape)
    if dtype.itemsize * n_values != len(stored) - file.tell() or min(shape, default=0) < 0:
        raise ValueError("the header of an array states another size than it has")
    if not n_values:
        return np.zeros(shape, dtype)
    values = np.frombuffer(stored, dtype, offset=file.tell()).copy()
    if dtype.kind == "U":
        # numpy takes any number for a character; other programs do not.
        codes = np.frombuffer(values, np.dtype("u4").newbyteorder(dtype.byteorder))
        if codes.max() > sys.maxunicode or ((codes >= 0xD800) & (codes < 0xE000)).any():
            raise ValueError("a text holds characters that do not exist")
    return values.reshape(shape, order="F" if in_columns else "C")


@cache
def _hints(cls: Any) -> Mapping[str, Any]:
    return get_type_hints(cls)


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the generic type of an annotation, and its arguments."""
    origin, args = get_origin(hint), get_args(hint)
    # On Python 3.12 and later, NDArray is a `type` statement since NumPy 2.5.
    if hasattr(origin, "__value__"):
        return _parts(origin.__value__[args])
    return origin, args


def _written_number(value: float) -> Json | None:
    return None if math.isnan(value) else {"infinite": 1 if value > 0 else -1}


def _written_array(values: NDArray[Any]) -> Any:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        unknown = np.isnan(values)
        if np.isinf(values).any():
            return to_plain(values.tolist())
        values = values.astype(object)
        values[unknown] = None
    return values.tolist()


def _written(field: Field[Any], value: Any) -> Any:
    """Return the stored form of a field."""
    if field.metadata and value is not None:
        if field.metadata["write"] is not None:
            value = field.metadata["write"](value)
        elif field.metadata["keys"]:
            value = dict(zip(field.metadata["keys"], value, strict=True))
    return to_plain(value)


def _read(field: Field[Any], hint: Any, plain: Json) -> Any:
    """Return the value of a field of a stored object."""
    if field.metadata and field.metadata["flat"] is not None:
        return from_plain(field.metadata["flat"], plain)
    value = plain[field.name]
    if not field.metadata or value is None:
        return _value(hint, value)
    if field.metadata["read"] is not None:
        return field.metadata["read"](value, plain)
    if field.metadata["keys"]:
        value = [value[key] for key in field.metadata["keys"]]
    return _value(hint, value, tuple(len(plain[name]) for name in field.metadata["shape"]))


def _value(hint: Any, plain: Any, shape: tuple[int, ...] = ()) -> Any:
    """Return the value of a type from its stored form."""
    origin, args = _parts(hint)
    if origin is None and hint is not float:
        if isinstance(hint, type) and is_dataclass(hint):
            return from_plain(hint, plain)
        if hint in (str, int, bool) and not _is_atom(hint, plain):
            raise TypeError(f"{plain!r:.50} is not of the type {hint.__name__}")
        return plain
    if origin in (Union, UnionType):
        if plain is None:
            return None
        (hint,) = (arg for arg in args if arg is not NoneType)
        return _value(hint, plain, shape)
    if origin is np.ndarray:
        dtype = _parts(args[1])[1][0]
        try:
            array = np.array(plain, dtype=dtype)
        except TypeError:  # infinity is an object
            if isinstance(plain, dict):
                raise
            array = np.array(_with_infinity(plain), dtype=dtype)
        return array.reshape(shape) if shape else array
    if origin is tuple and args[1:] != (...,):
        return tuple(_value(arg, x) for arg, x in zip(args, plain, strict=True))
    if origin in (tuple, frozenset):
        if not isinstance(plain, list | tuple):
            raise TypeError(f"{plain!r:.50} is not a list")
        return origin(_value(args[0], x) for x in plain)
    if origin in (dict, Mapping):
        return {key: _value(args[1], x, shape) for key, x in plain.items()}
    if hint is not float:
        return plain
    number = math.nan if plain is None else _with_infinity(plain)
    if isinstance(number, bool) or not isinstance(number, float | int):
        raise TypeError(f"{plain!r:.50} is not a number")
    return float(number)


def _is_atom(kind: type, plain: Any) -> bool:
    """Return whether a stored value is of a type; 1 is not a boolean, and True not a number."""
    return isinstance(plain, kind) and isinstance(plain, bool) == (kind is bool)


def _with_infinity(plain: Any) -> Any:
    """Return numbers, in lists or alone, with infinity as such."""
    if isinstance(plain, list):
        return [_with_infinity(x) for x in plain]
    return math.copysign(math.inf, plain["infinite"]) if isinstance(plain, dict) else plain
