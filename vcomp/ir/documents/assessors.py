"""G-studies that an assignment of assessors (roles, individuals) to topics allows.

References
----------
Bodoff, D. (2008). Test theory for evaluating reliability of IR test collections. *Information
Processing & Management*, 44(3), 1117-1145. Section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display
from vcomp.data import open_source
from vcomp.exceptions import DataError, PlanError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, eq=False)
class AssessorLayout:
    """A subset of the judgements with the design of its G-study.

    Attributes
    ----------
    name : of the layout
    design : in Brennan's notation, for :func:`vcomp.gstudy`; the object is ``system``
    assignments : its rows of the assignment table: ``topic``, ``role`` and ``assessor``
    measures : what the assessor facet represents
    confounds : effects that cannot be separated from it
    exact : whether the subset is known to be the largest possible; False after a greedy search
    fixed : facets to be fixed in D-studies, ``res.dstudy(fixed=layout.fixed)``: roles, which are
        all that there are. A variance between two roles is next to unknown
    """

    name: str
    design: str
    assignments: pd.DataFrame
    measures: str
    confounds: str
    exact: bool = True
    fixed: tuple[str, ...] = ()

    def rows(
        self, scores: Any, *, topic: str = "topic", assessor: str = "assessor"
    ) -> pd.DataFrame:
        """Return the scores of this layout, with the columns that its design names.

        Parameters
        ----------
        scores : one row per score, such as :func:`vcomp.ir.set_measures` and
            :meth:`DocumentUniverse.scores` give, in any container that :func:`vcomp.fit` reads
        topic, assessor : its columns; the assessor is an individual, or, where the table has a
            column ``role`` as well, an individual in a role

        Returns
        -------
        pandas.DataFrame
            Its rows that belong to the layout, in their order, with the columns ``topic``,
            ``role`` and ``assessor`` of the assignments and all others: ready for
            ``vcomp.gstudy(layout.design, rows, response)``. For document scores use
            the design with ``(document:topic)`` in place of ``topic``

        Raises
        ------
        DataError
            If a column is missing, an individual has several roles in a topic and the table has
            no column ``role``, or no row belongs to the layout.

        Examples
        --------
        >>> import vcomp
        >>> judged = {"topic": [1, 1, 2, 2], "role": ["author", "second"] * 2,
        ...           "assessor": ["A", "B", "B", "A"]}
        >>> scores = {"system": ["s"] * 4, "topic": [1, 1, 2, 2], "assessor": ["A", "B"] * 2,
        ...           "F": [0.1, 0.2, 0.3, 0.4]}
        >>> vcomp.ir.assessor_layouts(judged)["roles"].rows(scores)
          system  topic    role assessor    F
        0      s      1  author        A  0.1
        1      s      1  second        B  0.2
        2      s      2  second        A  0.3
        3      s      2  author        B  0.4
        """
        import pandas as pd

        source = open_source(scores)
        for name in (topic, assessor):
            if name not in source.columns:
                raise source.no_column(name)
        frame = source.read(source.columns)
        keys = ["topic", "assessor"]
        if "role" in frame.columns:
            keys = [*keys, "role"]
        elif self.assignments.duplicated(keys).any():
            twice = self.assignments[self.assignments.duplicated(keys)].iloc[0]
            raise DataError(
                f"assessor {shown(twice['assessor'])} has several roles in topic "
                f"{shown(twice['topic'])}: the scores need a column 'role'"
            )
        place = _places(
            self.assignments,
            frame,
            {**dict(zip(keys, keys, strict=True)), "topic": topic, "assessor": assessor},
        )
        belongs = place >= 0
        if not belongs.any():
            own = self.assignments.iloc[0]
            such = "there are none"
            if len(frame):
                one = frame[[assessor, topic]].iloc[0]
                such = f"one is of {shown(one.iloc[0])} and {shown(one.iloc[1])}"
            raise DataError(
                f"no score belongs to the layout {self.name!r}, which has assessor "
                f"{shown(own['assessor'])} of topic {shown(own['topic'])}; of the scores {such}",
                level=self.name,
            )
        rest = frame.loc[belongs].reset_index(drop=True)
        rest = rest.drop(columns=list({topic, assessor, *keys} & set(rest.columns)))
        chosen = place[belongs]
        judges = {c: pd.Categorical(self.assignments[c]).take(chosen) for c in self.assignments}
        front = {c: rest[c] for c in ("system",) if c in rest}
        return pd.DataFrame({**front, **judges, **{c: rest[c] for c in rest if c not in front}})


def shown(label: Any) -> str:
    """Format a label for messages: 202, not np.int64(202)."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def _places(assignments: pd.DataFrame, frame: pd.DataFrame, columns: Mapping[str, str]) -> Any:
    """Return the assignment row of each row of the frame; -1 if it has none."""
    import pandas as pd

    own, theirs = np.zeros(len(assignments), dtype=np.int64), np.zeros(len(frame), dtype=np.int64)
    known = np.ones(len(frame), dtype=bool)
    for key, column in columns.items():
        levels = pd.Index(assignments[key].unique(), dtype=object)
        coded = pd.Categorical(frame[column])
        # One extra place for missing values, whose code is -1.
        found = np.append(levels.get_indexer(coded.categories.astype(object)), -1)[coded.codes]
        known &= found >= 0
        theirs = theirs * len(levels) + found
        own = own * len(levels) + levels.get_indexer(assignments[key].astype(object))
    place = pd.Index(own).get_indexer(pd.Index(theirs))
    return np.where(known, place, -1)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AssessorLayouts(display.Printed):
    """Layouts that an assignment allows, by name, and reasons why others are impossible.

    ``layouts["roles"]`` is one of them, ``"roles" in layouts`` is whether it is possible, and
    iteration yields the names.

    Attributes
    ----------
    layouts : by name
    impossible : name → reason
    """

    layouts: Mapping[str, AssessorLayout]
    impossible: Mapping[str, str]

    def __getitem__(self, name: str) -> AssessorLayout:
        if name in self.layouts:
            return self.layouts[name]
        if name in self.impossible:
            raise PlanError(f"the layout {name!r} is not possible: {self.impossible[name]}")
        known = [*self.layouts, *self.impossible]
        raise PlanError(
            f"there is no layout {name!r}{did_you_mean(name, known)}; there are "
            f"{', '.join(map(repr, self.layouts))}"
        )

    def __contains__(self, name: object) -> bool:
        return name in self.layouts

    def __iter__(self) -> Iterator[str]:
        return iter(self.layouts)

    def __len__(self) -> int:
        return len(self.layouts)

    @property
    def table(self) -> pd.DataFrame:
        """One row per layout: design, numbers of topics, assessors, judgements, and meaning."""
        import pandas as pd

        rows = [
            {
                "layout": layout.name,
                "design": layout.design,
                "topics": layout.assignments["topic"].nunique(),
                "assessors": layout.assignments["assessor"].nunique(),
                "roles": layout.assignments["role"].nunique(),
                "judgements": len(layout.assignments),
                "measures": layout.measures,
                "confounds": layout.confounds,
                "exact": layout.exact,
                "fixed": ", ".join(layout.fixed),
            }
            for layout in self.layouts.values()
        ]
        return pd.DataFrame(rows)

    def summary(self) -> Any:
        """Return a printable summary of the possible and impossible layouts.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        table = self.table
        counts = ("topics", "assessors", "roles", "judgements")
        shown = display.simple_table(
            [
                [
                    str(row["design"]).replace(" x ", " × "),
                    *(display.count(row[c]) for c in counts),
                ]
                for row in table.to_dict("records")
            ],
            ["design", *counts],
            title="Layouts of roles and individuals that this assignment allows",
            stubs=[layout.name for layout in self.layouts.values()],
            align="lr",
        )
        notes = [
            f"{x.name}: {x.measures}. {x.confounds}."
            + (
                ""
                if x.exact
                else " The subset was found by a greedy search; a larger one may exist."
            )
            for x in self.layouts.values()
        ]
        fixed = [x.name for x in self.layouts.values() if x.fixed]
        if fixed:
            notes.append(
                f"In D-studies of {', '.join(fixed)} pass fixed='role': the roles are all that "
                "there are."
            )
        notes += [f"{name} is not possible: {why}." for name, why in self.impossible.items()]
        return display.summary([shown], notes)

    def __repr__(self) -> str:
        return f"<AssessorLayouts: {', '.join(self.layouts) or 'none'}>"
