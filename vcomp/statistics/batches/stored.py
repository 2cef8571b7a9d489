"""Statistics files: sums of cells in a zip archive of plain arrays and JSON, without any code."""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp._typing import FloatArray
from vcomp.codec import read_array, read_member
from vcomp.data import RowColumns, path_of, replacing
from vcomp.design import Centre
from vcomp.exceptions import DataError
from vcomp.formula import FixedPart, parse
from vcomp.numerics import check_memory
from vcomp.statistics.batches.cell_sums import CellSums
from vcomp.statistics.batches.cell_table import CellTable
from vcomp.statistics.batches.row_coding import RowCoding, SlopeColumns
from vcomp.statistics.batches.survey import ColumnKinds, FacetSurvey, Survey, XSums

if TYPE_CHECKING:
    import pandas as pd

_VERSION = 1
_OF_SURVEY = ("squares", "offset")
"""Numbers of the survey that only sums with weights or offsets have."""

_VERSION_OF_BLOCKS = 2
"""The format of sums with weights, offsets, slopes or residual groups. Older versions of vcomp
would overlook them."""
_HEADER = "vcomp.json"
_MEMBER = re.compile(
    r"((facet|factor)\d{1,4}\.(counts|values|stream|text|ends)|told\.\d{1,4}\.\d{1,4}|places|counts"
    r"|means|within|powers|x_origin|constant|varying|constants|weights|products"
    r"|columns\.(mean|gram|low|high))\.npy\Z"
)
"""Names of the arrays; other members of an archive are not read."""

_PLAIN = "biufM"
"""Kinds of arrays that are stored as they are."""

_OF_ARROW = ("date", "timestamp", "duration", "time", "decimal", "binary")
"""Types that are stored in Arrow's format: dates, times with a zone, exact decimals."""

_ROUNDING = 1e-6
"""Largest difference, as a share of the largest number, of numbers that agree."""


def write_sums(sums: CellSums, path: str | Path) -> None:
    """Write sums to a file; an existing file is replaced once the new one is complete.

    Raises
    ------
    DataError
        If the file cannot be written, or levels are neither numbers, dates nor text.
    """
    header, arrays = _packed(sums)
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        archive.writestr(_HEADER, json.dumps(header))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.ascontiguousarray(array), allow_pickle=False)


def read_sums(path: str | Path) -> CellSums:
    """Return the sums in a file that :func:`write_sums` wrote.

    Raises
    ------
    DataError
        If the file does not exist, is not a statistics file, or has a later version.
    """
    file = path_of(path)
    try:
        with zipfile.ZipFile(file) as archive:
            check_memory(
                3.0 * file.stat().st_size,
                f"reading {str(path)!r} needs",
                "use a machine with more memory, or merge fewer files",
                DataError,
            )
            header = json.loads(read_member(archive, _HEADER))
            version = header["version"]
            if version in (_VERSION, _VERSION_OF_BLOCKS):
                names = dict.fromkeys(name for name in archive.namelist() if _MEMBER.match(name))
                _check_sizes(archive, names, file.stat().st_size)
                arrays = {n[:-4]: read_array(read_member(archive, n)) for n in names}
                return _checked(_unpacked(header, arrays))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (DataError, MemoryError):
        raise
    except Exception as error:  # a damaged file can fail anywhere: in zip, JSON, numpy or here
        raise DataError(
            f"{str(path)!r} does not hold statistics that vcomp stored, or is cut off: "
            f"{str(error) or type(error).__name__}"
        ) from None
    raise DataError(
        f"{str(path)!r} was stored in version {version!r} of the format; this is version "
        f"{_VERSION_OF_BLOCKS}: update vcomp, or read the rows anew"
    )


def _check_sizes(archive: zipfile.ZipFile, names: Iterable[str], size: int) -> None:
    """Refuse members that together are larger than the file, as they overlap.

    Raises
    ------
    ValueError
    """
    if sum(archive.getinfo(name).file_size for name in names) > size:
        raise ValueError("its members together are larger than the file")


def _checked(sums: CellSums) -> CellSums:
    """Return the sums, checked: values have the right kind and agree with each other.

    Raises
    ------
    ValueError
        If they do not.
    """
    coding, survey, table = sums.coding, sums.coding.survey, sums.table
    p, n_facets = len(coding.fixed.names), len(survey.facets)
    k = 0 if coding.slopes is None else coding.slopes.n_columns
    _check((coding.sums is None) == coding.sums_plainly)
    if coding.sums is not None:
        _check_sums(coding.sums, p + k)
    columns = [kind for kind in coding.kinds.levels.values() if kind is not None]
    arrays = [
        (coding.varying, "b", (p + k,)),
        (coding.constants, "f", (p + k,)),
        *((x, "f", (p,)) for x in (coding.centre.x_origin, coding.centre.constant)),
        *((facet.counts, "iu", (len(facet.levels),)) for facet in (*survey.facets, *columns)),
        *(
            (level, "i", (len(survey.facets[inner].levels),))
            for (inner, _), level in survey.determined.items()
        ),
    ]
    _check(all(a.dtype.kind in kinds and a.shape == shape for a, kinds, shape in arrays))
    _check(len(set(coding.fixed.names)) == p)
    _check(all(isinstance(x, str) for x in (*coding.fixed.names, *coding.kinds.levels)))
    _check(coding.kinds.booleans <= coding.kinds.levels.keys())
    _check(isinstance(survey.n, int) and survey.n > 0)
    known = [x for x in (survey.squares, survey.offset) if x is not None]
    ends = (survey.low, survey.mean, survey.high, coding.centre.origin, *known)
    _check((survey.squares is None) == (table.weights is None) and (survey.squares or 0.0) >= 0.0)
    _check((table.weights is None) == (not coding.of_rows.variances))
    _check((table.products is None) != coding.has_blocks)
    _check(table.may_fill_grid or table.places is not None)
    _check(all(isinstance(x, float | int) and math.isfinite(x) for x in ends))
    values = survey.values or (survey.low, survey.high)
    _check(values[0] == survey.low and values[-1] == survey.high)
    _check(values == tuple(sorted(values)))
    slack = _ROUNDING * max(abs(survey.low), abs(survey.high))
    _check(survey.low - slack <= survey.mean <= survey.high + slack)
    for facet in (*survey.facets, *columns):
        _check(facet.levels.is_unique and not facet.levels.hasnans)
        _check(bool((facet.counts >= 0).all()) and int(facet.counts.sum()) == survey.n)
    for (inner, outer), level in survey.determined.items():
        _check(max(inner, outer) < n_facets and inner != outer)
        most = len(survey.facets[outer].levels)
        _check(bool(((level >= -1) & (level < most)).all()))
        _check(bool((level[survey.facets[inner].counts > 0] >= 0).all()))
    _check_table(table, coding.places.size, coding.n_columns, survey.n)
    # A mean lies between the smallest and the largest score, unless it was changed.
    means = table.means[0] + coding.centre.origin  # of cells that have rows
    spread = _ROUNDING * (survey.high - survey.low) + slack
    _check(survey.low - spread <= float(means.min(initial=np.inf)))
    _check(float(means.max(initial=-np.inf)) <= survey.high + spread)
    return sums


def _check_table(table: CellTable, n_places: int, n_columns: int, n_rows: int) -> None:
    size = n_places if table.places is None else table.places.size
    arrays = [
        (table.counts, "iu", (size,)),
        (table.means, "f", (n_columns, size)),
        (table.within, "f", (n_columns,) * 2),
    ]
    if table.places is not None:
        arrays += [(table.places, "i", (size,))]
    _check(all(a.dtype.kind in kinds and a.shape == shape for a, kinds, shape in arrays))
    _check(bool((table.counts >= 0).all()) and table.n == n_rows)
    if table.places is not None:
        inside = (table.places >= 0) & (table.places < n_places)
        _check(bool(inside.all() and (np.diff(table.places) > 0).all()))
    _check(bool(np.isfinite(table.means).all() and np.isfinite(table.within).all()))
    # Sums of squares are positive, and products are between them (Cauchy and Schwarz).
    squares = np.diag(table.within)
    _check(bool((squares >= 0.0).all() and np.array_equal(table.within, table.within.T)))
    with np.errstate(over="ignore"):
        largest = np.sqrt(squares)[:, None] * np.sqrt(squares)
    _check(bool((np.abs(table.within) <= largest * (1.0 + _ROUNDING)).all()))
    if table.powers is not None:
        _check_powers(table.powers, table.counts, float(squares[0]))
    if table.weights is not None:
        _check_weights(table.weights, table.counts)
    if table.products is not None:
        _check_products(table.products, table.within)


def _check_weights(weights: FloatArray, counts: FloatArray) -> None:
    _check(weights.dtype.kind == "f" and weights.shape == (2, counts.size))
    _check(bool(np.isfinite(weights).all() and (weights[0] > 0.0).all()))
    # The mean of logarithms is at most the logarithm of the mean.
    most = np.log(weights[0] / counts)
    _check(bool((weights[1] / counts <= most + _ROUNDING * np.maximum(1.0, np.abs(most))).all()))


def _check_products(products: FloatArray, within: FloatArray) -> None:
    b = len(within)
    _check(products.dtype.kind == "f" and products.shape[:2] == (b, b) and products.ndim == 3)
    _check(bool(np.isfinite(products).all()))
    squares = np.array([products[k, k] for k in range(b)])
    _check(bool((squares >= 0.0).all() and (products == products.transpose(1, 0, 2)).all()))
    with np.errstate(over="ignore"):
        largest = np.sqrt(squares)[:, None] * np.sqrt(squares)
    _check(bool((np.abs(products) <= largest * (1.0 + _ROUNDING)).all()))
    away = np.abs(products.sum(axis=2) - within)
    _check(bool((away <= _ROUNDING * largest.sum(axis=2)).all()))


def _check_sums(sums: XSums, k: int) -> None:
    ends = [(array, (k,)) for array in (sums.low, sums.mean, sums.high)]
    for array, shape in (*ends, (sums.gram, (k, k))):
        _check(array.dtype.kind == "f" and array.shape == shape and bool(np.isfinite(array).all()))
    slack = _ROUNDING * np.maximum(np.abs(sums.low), np.abs(sums.high))
    _check(bool((sums.low - slack <= sums.mean).all() and (sums.mean <= sums.high + slack).all()))
    _check(bool((np.diagonal(sums.gram) >= 0.0).all() and np.array_equal(sums.gram, sums.gram.T)))


def _check_powers(powers: FloatArray, counts: FloatArray, within: float) -> None:
    size = counts.size if (counts > 1).any() else 0
    _check(powers.dtype.kind == "f" and powers.shape == (3, size))
    _check(bool(np.isfinite(powers).all() and (powers[[0, 2]] >= 0.0).all()))
    _check(not powers[:, powers[0] == 0.0].any())
    _check(abs(float(powers[0].sum()) - within) <= _ROUNDING * within)


def _check(agrees: bool) -> None:
    if not agrees:
        raise ValueError("its numbers contradict each other")


def _packed(sums: CellSums) -> tuple[dict[str, Any], dict[str, Any]]:
    coding, survey, table = sums.coding, sums.coding.survey, sums.table
    named = {f"facet{k}": facet for k, facet in enumerate(survey.facets)}
    factors = {f"factor{k}": kind for k, kind in enumerate(coding.kinds.levels.values())}
    named |= {name: kind for name, kind in factors.items() if kind is not None}
    arrays: dict[str, Any] = {}
    kinds = {}
    for name, facet in named.items():
        column = coding.formula.level_columns[int(name[5:])] if name.startswith("facet") else name
        kinds[name], packed = _packed_levels(facet.levels, column)
        arrays |= {f"{name}.{part}": array for part, array in packed.items()}
        arrays[f"{name}.counts"] = facet.counts
    for (inner, outer), level in survey.determined.items():
        arrays[f"told.{inner}.{outer}"] = level
    places, filled = table.filled()
    if places.size < table.counts.size or table.places is not None:
        arrays["places"] = places
    arrays |= {"counts": filled.counts, "means": filled.means, "within": filled.within}
    further = {"powers": filled.powers, "weights": filled.weights, "products": filled.products}
    arrays |= {name: array for name, array in further.items() if array is not None}
    centre = coding.centre
    arrays |= {
        "x_origin": centre.x_origin,
        "constant": centre.constant,
        "varying": coding.varying,
        "constants": coding.constants,
    }
    beyond, of_columns = _beyond(coding)
    arrays |= of_columns
    total = survey.total
    rounded = float(total)
    header = {
        "version": _VERSION_OF_BLOCKS if beyond else _VERSION,
        "formula": coding.formula.text,
        "n": survey.n,
        "total": [rounded, float(total - np.longdouble(rounded))],
        "low": survey.low,
        "high": survey.high,
        "values": survey.values,
        "origin": centre.origin,
        "columns": coding.fixed.names,
        "is_stateful": coding.fixed.is_stateful,
        "factors": list(coding.kinds.levels),
        "booleans": sorted(coding.kinds.booleans),
        "levels": kinds,
        "powers": filled.powers is not None,
        **beyond,
    }
    return header, arrays


def _beyond(coding: RowCoding) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and arrays of weights, offsets, slopes and residual groups."""
    header: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    if coding.of_rows:
        header["options"] = coding.of_rows.by_option
    header |= {name: x for name in _OF_SURVEY if (x := getattr(coding.survey, name)) is not None}
    if coding.formula.groups is not None:
        header["residual"] = coding.formula.groups.written
    if coding.slopes is not None:
        header["slopes"] = [
            None if part is None else {"names": part.names, "is_stateful": part.is_stateful}
            for part in coding.slopes.parts
        ]
    sums = coding.sums
    if sums is not None:
        of_sums = {"mean": sums.mean, "gram": sums.gram, "low": sums.low, "high": sums.high}
        arrays = {f"columns.{name}": array for name, array in of_sums.items()}
    return header, arrays


def _sums(header: dict[str, Any], arrays: Mapping[str, Any]) -> XSums | None:
    """Return the sums of the columns of X and of slopes; None where they were not needed."""
    if "columns.mean" not in arrays:
        return None
    ends = (arrays["columns.low"], arrays["columns.high"])
    return XSums(header["n"], arrays["columns.mean"], arrays["columns.gram"], *ends)


def _slopes(header: dict[str, Any]) -> SlopeColumns | None:
    """Return the columns of slopes; None without."""
    if "slopes" not in header:
        return None
    parts = tuple(
        None
        if stored is None
        else FixedPart(tuple(stored["names"]), is_known=False, is_stateful=stored["is_stateful"])
        for stored in header["slopes"]
    )
    return SlopeColumns(parts)


def _packed_levels(levels: pd.Index, name: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of some levels, and the arrays that store them."""
    values = levels.to_numpy()
    if values.dtype.kind in _PLAIN:
        return "plain", {"values": values}
    if not all(isinstance(level, str) for level in values):
        stored = _arrow_bytes(levels)
        if stored is None:
            other = next(level for level in values if not isinstance(level, str))
            raise DataError(
                f"column {name!r} has levels that cannot be stored, such as {other!r}; make them "
                "numbers, dates or text",
                column=name,
                level=other,
            )
        return "arrow", {"stream": stored}
    texts = [level.encode() for level in values]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return "text", {"text": np.frombuffer(b"".join(texts), np.uint8), "ends": ends}


def _arrow_bytes(levels: pd.Index) -> Any:
    """Return levels such as dates as an Arrow stream; None if they would be read back changed."""
    import pandas as pd
    import pyarrow as pa

    try:
        array = pa.array(levels)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):  # of several types
        return None
    if not str(array.type).startswith(_OF_ARROW):
        return None
    if not pd.Index(array.to_pandas()).equals(pd.Index(levels.to_numpy())):
        return None
    sink = pa.BufferOutputStream()
    table = pa.table({"levels": array})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _unpacked(header: dict[str, Any], arrays: Mapping[str, Any]) -> CellSums:
    formula = parse(header["formula"], residual=header.get("residual"))
    survey = Survey(
        facets=tuple(
            _facet(f"facet{k}", header, arrays) for k in range(len(formula.level_columns))
        ),
        determined={
            (int(name.split(".")[1]), int(name.split(".")[2])): array
            for name, array in arrays.items()
            if name.startswith("told.")
        },
        n=header["n"],
        total=np.longdouble(header["total"][0]) + np.longdouble(header["total"][1]),
        low=header["low"],
        high=header["high"],
        values=_values(header.get("values")),
        **{name: header.get(name) for name in _OF_SURVEY},
    )
    names = tuple(header["columns"])
    coding = RowCoding(
        formula=formula,
        survey=survey,
        centre=Centre(header["origin"], arrays["x_origin"], arrays["constant"]),
        fixed=FixedPart(names, is_known=formula.intercept_only, is_stateful=header["is_stateful"]),
        kinds=ColumnKinds(
            {
                column: _facet(f"factor{k}", header, arrays)
                if f"factor{k}" in header["levels"]
                else None
                for k, column in enumerate(header["factors"])
            },
            frozenset(header["booleans"]),
        ),
        varying=arrays["varying"],
        constants=arrays["constants"],
        slopes=_slopes(header),
        sums=_sums(header, arrays),
        of_rows=RowColumns(**header.get("options", {})),
    )
    means: FloatArray = arrays["means"]
    powers = arrays["powers"] if header.get("powers") else None  # None in older files
    beside = powers, arrays.get("weights"), arrays.get("products")
    table = CellTable(arrays.get("places"), arrays["counts"], means, arrays["within"], *beside)
    return CellSums(coding, table)


def _values(stored: list[float] | None) -> tuple[float, ...] | None:
    """Return the few values of the response; None if there are more, and in older files."""
    return None if stored is None else tuple(map(float, stored))


def _facet(name: str, header: dict[str, Any], arrays: Mapping[str, Any]) -> FacetSurvey:
    import pandas as pd

    counts = arrays[f"{name}.counts"]
    if header["levels"][name] == "plain":
        return FacetSurvey(pd.Index(arrays[f"{name}.values"]), counts)
    if header["levels"][name] == "arrow":
        import pyarrow as pa

        table = pa.ipc.open_stream(arrays[f"{name}.stream"].tobytes()).read_all()
        return FacetSurvey(pd.Index(table.column(0).to_pandas()), counts)
    text, ends = arrays[f"{name}.text"].tobytes(), arrays[f"{name}.ends"]
    starts = np.concatenate([[0], ends[:-1]]) if ends.size else ends
    levels = [text[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    return FacetSurvey(pd.Index(levels), counts)
