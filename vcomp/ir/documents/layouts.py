"""Find the layouts that an assignment of judges to topics and roles allows (Bodoff, 2008, § 6)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from vcomp.data import open_source
from vcomp.exceptions import DataError
from vcomp.ir.documents.assessors import AssessorLayout, AssessorLayouts, shown

if TYPE_CHECKING:
    import pandas as pd

_MOST_SETS = 20_000
"""Largest number of examined closed sets; beyond, a greedy search is added."""

Row = TypeVar("Row", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CrossedSubset:
    """A complete sub-table: every row has every column.

    Attributes
    ----------
    rows, columns : their numbers
    exact : whether no larger one exists
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    exact: bool


def largest_crossed(
    table: Sequence[frozenset[int]],
    *,
    least_rows: int = 2,
    least_columns: int = 2,
    most_sets: int = _MOST_SETS,
) -> CrossedSubset | None:
    """Return the complete sub-table with most cells; None if all are smaller than the minimum.

    The columns of a largest one are an intersection of some rows (a closed set, in formal concept
    analysis), so that only these are examined; there are few if rows have few columns. If
    there are more than `most_sets`, the result is the best of these and of a greedy search, which
    removes rows and columns, the emptiest first; it need not be the largest.

    Parameters
    ----------
    table : the columns of every row
    least_rows, least_columns : minimum numbers of rows and columns
    most_sets : see above

    Examples
    --------
    >>> largest_crossed([frozenset({0, 1}), frozenset({0, 1, 2}), frozenset({2})])
    CrossedSubset(rows=(0, 1), columns=(0, 1), exact=True)
    """
    counts: dict[frozenset[int], list[int]] = {}
    for number, columns in enumerate(table):
        counts.setdefault(columns, []).append(number)
    closed, exact = _closed_sets(counts, least_columns, most_sets)
    found: list[CrossedSubset] = []
    # Sorted, so as not to depend on hashes: ties go to the first columns.
    for chosen in sorted(map(sorted, closed)):
        rows = sorted(r for own in counts if own.issuperset(chosen) for r in counts[own])
        if len(rows) >= least_rows:
            found.append(CrossedSubset(tuple(rows), tuple(chosen), exact))
    if not exact:
        found += _greedy(table, least_rows, least_columns)
    return max(found, key=lambda subset: len(subset.rows) * len(subset.columns), default=None)


def _closed_sets(
    counts: Mapping[frozenset[int], list[int]], least: int, most: int
) -> tuple[set[frozenset[int]], bool]:
    """Return intersections of rows with `least` columns or more, and whether all were found."""
    closed: set[frozenset[int]] = set()
    for row in counts:
        if len(row) < least:
            continue
        met = {row & known for known in closed}
        closed |= {both for both in met if len(both) >= least} | {row}
        if len(closed) > most:
            return closed, False
    return closed, True


def _greedy(
    table: Sequence[frozenset[int]], least_rows: int, least_columns: int
) -> list[CrossedSubset]:
    """Remove the row or column with the largest share of empty cells until no cell is empty."""
    rows, columns = set(range(len(table))), set().union(*table)
    while len(rows) >= least_rows and len(columns) >= least_columns:
        shares = [
            *((len(columns - table[r]) / len(columns), rows, r) for r in sorted(rows)),
            *((sum(c not in table[r] for r in rows) / len(rows), columns, c)
              for c in sorted(columns)),
        ]  # fmt: skip
        share, side, number = max(shares, key=itemgetter(0))
        if share == 0.0:
            return [CrossedSubset(tuple(sorted(rows)), tuple(sorted(columns)), False)]
        side.discard(number)
    return []


_MOST_PAIRS = 12
"""Largest number of judges per topic with all subsets examined; beyond, only pairs."""

_COLUMNS = ("topic", "role", "assessor")


def assessor_layouts(
    assignments: Any, *, topic: str = "topic", role: str = "role", assessor: str = "assessor"
) -> AssessorLayouts:
    """Return the layouts of G-studies of roles and individuals that an assignment allows.

    Assessors of a topic differ in role (the author of the topic, a second assessor) and as
    individuals. To separate all effects of roles and individuals, every individual would have to
    serve in every role on every topic, which is impossible: nobody is both the author of a topic
    and not. Subsets of the judgements allow some of these effects to be estimated (Bodoff, 2008,
    sec. 6).

    Parameters
    ----------
    assignments : a row for each assessor of a topic, with the columns `topic`, `role` and
        `assessor` (an individual), in any container that :func:`vcomp.fit` reads
    topic, role, assessor : names of the columns

    Returns
    -------
    AssessorLayouts
        Layouts by name; ``print`` it to see what each measures and confounds. R is a
        role that two or more topics have

        ``"roles"``
            system × role × topic: topics that have the same roles, with one individual in each
            (if several have a role, the first in the table). As in Soboroff and Harman (2003)
        ``"individuals"``
            system × (assessor:topic): all assessors, as different individuals on different
            topics. As in Voorhees (2000)
        ``"individuals in R"``
            the same for the individuals in one role only
        ``"crossed"``
            system × assessor × topic: the largest set of individuals that judged the same topics,
            in whatever roles
        ``"crossed in R"``
            the same for those who had role R in all of these topics (Bodoff's table 17)
        ``"one to one"``
            system × role × topic: the most topics in which the same individuals had the same roles
            (Bodoff's table 18)
        ``"roles x individuals"``
            system × role × assessor × topic: everyone in every role of every topic
        ``"individuals in roles"``
            system × (assessor:(role × topic)): several individuals in each role of a topic

    Raises
    ------
    DataError
        If a column is missing or has missing values, an individual occurs twice in one role of a
        topic, or there are fewer than two topics.

    Notes
    -----
    The largest crossed sub-tables are found exactly, from all intersections of the topics' roles
    or individuals. If there are more than 20,000 intersections, the search is greedy and ``exact``
    of the layout is False.

    References
    ----------
    Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
    Processing & Management*, 44(3), 1117-1145. Section 6, tables 17 to 21.

    Examples
    --------
    >>> judged = {"topic": [1, 1, 2, 2, 3, 3], "role": ["author", "second"] * 3,
    ...           "assessor": ["A", "B", "A", "B", "C", "A"]}
    >>> layouts = assessor_layouts(judged)
    >>> layouts.table[["layout", "design", "topics", "judgements"]]
            layout                        design  topics  judgements
    0        roles         system x role x topic       3           6
    1  individuals     system x (assessor:topic)       3           6
    2      crossed     system x assessor x topic       2           4
    3   one to one         system x role x topic       2           4
    """
    frame = _read(assignments, (topic, role, assessor))
    found: dict[str, AssessorLayout] = {}
    impossible: dict[str, str] = {}
    roles = frame["role"].drop_duplicates().tolist()
    makers: list[tuple[str, Callable[[], AssessorLayout | str]]] = [
        ("roles", lambda: _roles(frame)),
        ("individuals", lambda: _nested(frame, "individuals", None)),
        *(
            (f"individuals in {r}", lambda r=r: _nested(frame, f"individuals in {r}", r))
            for r in roles
        ),
        ("crossed", lambda: _crossed(frame, "crossed", None)),
        *((f"crossed in {r}", lambda r=r: _crossed(frame, f"crossed in {r}", r)) for r in roles),
        ("one to one", lambda: _one_to_one(frame)),
        ("roles x individuals", lambda: _everyone(frame)),
        ("individuals in roles", lambda: _within_roles(frame)),
    ]
    for name, make in makers:
        made = make()
        if isinstance(made, str):
            impossible[name] = made
        else:
            found[name] = made
    return AssessorLayouts(found, impossible)


def _read(assignments: Any, columns: tuple[str, str, str]) -> pd.DataFrame:
    source = open_source(assignments)
    frame = source.read(columns).set_axis(list(_COLUMNS), axis=1)
    for name, own in zip(columns, _COLUMNS, strict=True):
        missing = int(frame[own].isna().sum())
        if missing:
            raise DataError(f"{missing:,} rows of the assignments have no value in {name!r}")
    twice = frame.duplicated(list(_COLUMNS))
    if twice.any():
        t, r, a = (shown(x) for x in frame[twice].iloc[0])
        raise DataError(f"assessor {a} occurs twice in role {r} of topic {t}")
    if frame["topic"].nunique() < 2:
        raise DataError(
            f"a layout needs two topics or more, and there are {frame['topic'].nunique()}"
        )
    return frame.astype(object)


# Each function returns a layout, or the reason why it is impossible -----------------------------


def _roles(frame: pd.DataFrame) -> AssessorLayout | str:
    names = frame["role"].drop_duplicates().tolist()
    chosen = _complete(frame, "role", names)
    if chosen is None:
        return "no two topics have two roles in common"
    rows, exact = chosen
    first = rows.drop_duplicates(["topic", "role"])
    several = len(first) < len(rows)
    return AssessorLayout(
        "roles",
        "system x role x topic",
        _numbered(first),
        "roles, over whatever individuals had them",
        "Individuals, who change from topic to topic, and their interactions are in the effects "
        "of role and of role by topic; they average out of the former only if drawn at random"
        + (". Of several individuals in a role the first is used" if several else ""),
        exact,
        ("role",),
    )


def _nested(frame: pd.DataFrame, name: str, role: Any) -> AssessorLayout | str:
    rows = frame if role is None else frame[frame["role"] == role]
    rows = rows.drop_duplicates(["topic", "assessor"])
    counts = rows.groupby("topic")["assessor"].size()
    where = "" if role is None else " in this role"
    if counts.max() < 2:
        return f"no topic has several individuals{where}"
    if len(counts) < 2:
        return f"only one topic has anyone{where}"
    what = "and roles " if role is None and len(frame["role"].unique()) > 1 else ""
    return AssessorLayout(
        name,
        "system x (assessor:topic)",
        _numbered(rows),
        "individuals within topics; one who judged several topics counts as several",
        f"Individuals {what}are one effect with their interactions with topics; "
        "plans with the same assessors for all topics cannot be studied",
    )


def _crossed(frame: pd.DataFrame, name: str, role: Any) -> AssessorLayout | str:
    rows = frame if role is None else frame[frame["role"] == role]
    rows = rows.drop_duplicates(["topic", "assessor"])
    chosen = _complete(rows, "assessor", sorted(rows["assessor"].drop_duplicates(), key=_order))
    if chosen is None:
        where = "" if role is None else " in this role"
        return f"no two individuals judged the same two topics{where}"
    of_all = role is None and len(chosen[0]["role"].unique()) > 1
    return AssessorLayout(
        name,
        "system x assessor x topic",
        _numbered(chosen[0]),
        "individuals, over whatever roles they had" if of_all else "individuals in one role",
        "Roles, which change from topic to topic, are in the effects of assessors and of "
        "assessors by topics"
        if of_all
        else "Results do not apply to tests in which other roles judge",
        chosen[1],
    )


def _one_to_one(frame: pd.DataFrame) -> AssessorLayout | str:
    """Examine all sets of (role, individual) pairs of every topic, which are few."""
    served: dict[tuple[Any, ...], list[Any]] = {}
    exact = True
    for topic, rows in frame.groupby("topic", sort=False):
        pairs = sorted(
            zip(rows["role"], rows["assessor"], strict=True), key=lambda p: [*map(_order, p)]
        )
        exact = exact and len(pairs) <= _MOST_PAIRS
        most = len(pairs) if len(pairs) <= _MOST_PAIRS else 2
        for size in range(2, most + 1):
            for chosen in combinations(pairs, size):
                if all(len(set(side)) == size for side in zip(*chosen, strict=True)):
                    served.setdefault(chosen, []).append(topic)
    of_two = {pairs: topics for pairs, topics in served.items() if len(topics) >= 2}
    if not of_two:
        return "no two individuals had the same two roles in two topics"
    best = max(of_two, key=lambda pairs: len(pairs) * len(of_two[pairs]))
    wanted = {(topic, *pair) for topic in of_two[best] for pair in best}
    keep = [row in wanted for row in frame.itertuples(index=False, name=None)]
    return AssessorLayout(
        "one to one",
        "system x role x topic",
        _numbered(frame[keep]),
        "roles of certain individuals, who have the same roles in all these topics",
        "Role and individual are one effect, estimated from these few individuals only",
        exact,
        ("role",),
    )


def _everyone(frame: pd.DataFrame) -> AssessorLayout | str:
    n = {name: frame[name].nunique() for name in _COLUMNS}
    if n["role"] < 2 or n["assessor"] < 2:
        return "it needs two roles and two individuals"
    if len(frame) < n["topic"] * n["role"] * n["assessor"]:
        return "not everyone had every role in every topic"
    return AssessorLayout(
        "roles x individuals",
        "system x role x assessor x topic",
        _numbered(frame),
        "roles and individuals as separate effects, with all their interactions",
        "Nothing is confounded but the highest interaction with error",
        fixed=("role",),
    )


def _within_roles(frame: pd.DataFrame) -> AssessorLayout | str:
    counts = frame.groupby(["topic", "role"])["assessor"].size().unstack()
    full = counts.dropna()
    if counts.shape[1] < 2 or len(full) < 2:
        return "no two topics have all roles"
    if int(full.min().min()) < 2:
        one = str(full.min().idxmin())
        return f"role {one!r} has only one individual in a topic: their effects are confounded"
    return AssessorLayout(
        "individuals in roles",
        "system x (assessor:(role x topic))",
        _numbered(frame[frame["topic"].isin(full.index)]),
        "roles, and individuals within the roles of a topic",
        "Individuals are one effect with their interactions with roles and topics",
        fixed=("role",),
    )


# Subsets ----------------------------------------------------------------------------------------


def _complete(
    frame: pd.DataFrame, column: str, values: list[Any]
) -> tuple[pd.DataFrame, bool] | None:
    """Return the rows of the largest set of topics with the same values of a column."""
    number = {value: k for k, value in enumerate(values)}
    has: dict[Any, set[int]] = {t: set() for t in frame["topic"].unique()}
    for t, value in zip(frame["topic"], frame[column], strict=True):
        has[t].add(number[value])
    topics = list(has)
    found = largest_crossed([frozenset(has[t]) for t in topics])
    if found is None:
        return None
    rows, chosen = {topics[r] for r in found.rows}, {values[c] for c in found.columns}
    return frame[frame["topic"].isin(rows) & frame[column].isin(chosen)], found.exact


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a new index and their original types."""
    return rows[list(_COLUMNS)].infer_objects().reset_index(drop=True)


def _order(value: Any) -> tuple[str, Any]:
    """Return a sort key for values of several types."""
    return type(value).__name__, value
