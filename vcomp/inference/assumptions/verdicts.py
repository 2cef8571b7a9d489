"""What deviations from the assumptions matter for, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from vcomp import display
from vcomp.inference.assumptions.samples import Assumption, AssumptionTest
from vcomp.inference.assumptions.two_way_table import TableFindings

Matters: TypeAlias = Literal["no", "slightly", "yes", "strongly"]

_LARGE: dict[str, float] = {
    "normality": 1.0,
    "outliers": 1.0,
    "equal variances": 0.5,
    "uncorrelated": 0.2,
    "uncorrelated effects": 0.2,
    "additivity": 0.05,
    "equal slopes": 0.1,
    "nonnegative variance": 0.2,
}
"""From these effect sizes on a deviation is large; below, its consequences are small."""

_SURE = 0.05
_MANY = 20
"""With so many levels of every facet robust intervals cover 91 to 98 % in the coverage study."""

_F_SLIGHT, _F_LARGE = 0.065, 0.1
"""True levels of an F test at .05 that count as a deviation."""

_LARGEST_POWER = 3.0

_MOST_OF_IT = 0.5
"""Share of the residual sum of squares that one cell makes and that is "strongly"."""

_INFLATED = 1.5
"""Outliers by which a variance is so many times as large matter."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """The outcome of one test: assumption, of what, effect size, adjusted p, and skewness."""

    assumption: Assumption
    of: str
    effect: float
    p: float
    skewness: float

    @property
    def is_sure(self) -> bool:
        """Whether the assumption is rejected, with p adjusted for all tests."""
        return bool(display.snapped(self.p, _SURE) <= _SURE)

    @property
    def is_large(self) -> bool:
        """Whether it is rejected and the effect is large."""
        size = max(abs(self.effect), abs(self.skewness))
        large = _LARGE[self.assumption]
        return bool(self.is_sure and display.snapped(size, large) >= large)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether deviations matter for one kind of number.

    Attributes
    ----------
    number : of the library
    matters : ``"no"``, ``"slightly"``, ``"yes"`` or ``"strongly"``
    because : the reason, a sentence
    """

    number: str
    matters: Matters
    because: str


@dataclass(frozen=True, slots=True)
class OutlyingRows:
    """Rows by which the residual variance is large.

    Attributes
    ----------
    labels : of the rows
    variance, without : residual variance with and without them
    share : of the residual sum of squares that they make
    one_cell : whether they have the same levels of all facets
    of : `` of`` and the residual groups whose variance it is; empty with one variance
    """

    labels: tuple[str, ...]
    variance: float
    without: float
    share: float = 0.0
    one_cell: bool = False
    of: str = ""

    @property
    def inflation(self) -> float:
        """How many times as large the variance is with the rows."""
        return self.variance / self.without if self.without > 0.0 else np.inf


@dataclass(frozen=True, slots=True)
class MissingSlope:
    """A slope that a model has not, tested by the fit of the model with it.

    Attributes
    ----------
    covariate, groups : of the slope
    written : the term with the slope, as it is written in a formula
    in_place_of : the term of the model, as it is written
    statistic, p_value : of the likelihood ratio
    mean, sd : fixed effect of the covariate, and standard deviation of the slopes about it
    residual, with_slopes : residual variance of the model, and of that with the slope
    """

    covariate: str
    groups: str
    written: str
    in_place_of: str
    statistic: float
    p_value: float
    mean: float
    sd: float
    residual: float
    with_slopes: float

    @property
    def test(self) -> AssumptionTest:
        """The test; its effect is the share of the residual variance that slopes take."""
        return AssumptionTest(
            "equal slopes", f"{self.covariate} by {self.groups}", self.statistic, self.p_value,
            1.0 - self.with_slopes / self.residual, "share of residual variance",
            "likelihood ratio, mixture of χ²",
        )  # fmt: skip


def verdicts_of(
    found: Sequence[Deviation],
    sizes: Mapping[str, int],
    tables: Sequence[TableFindings],
    inflation: Mapping[str, float] | None = None,
    rows: OutlyingRows | None = None,
    slopes: Sequence[MissingSlope] = (),
    *,
    has_slopes: bool = False,
) -> list[Verdict]:
    """Return what the deviations matter for.

    Parameters
    ----------
    found : outcome of every test
    sizes : levels of each facet
    tables : of crossed facets
    inflation : how many times as large variances are with outliers, by what these are of
    rows : those that are outlying
    slopes : tests of slopes that the model has not
    has_slopes : whether the model has random slopes: D-studies are for others
    """
    every = [
        _of_estimates(found, inflation or {}, rows),
        _of_fixed_effects(found, slopes),
        _of_default_intervals(found, sizes),
        _of_normal_theory(found),
        *(_of_f_test(found, table) for table in tables),
        _of_tau(found, sizes, tables),
        None if has_slopes else _of_sizes(found, tables),
        _of_draws(found),
    ]
    return [verdict for verdict in every if verdict is not None]


def _some(found: Iterable[Deviation], *assumptions: str) -> list[Deviation]:
    return [d for d in found if d.assumption in assumptions and d.is_sure]


def _degree(found: Iterable[Deviation]) -> Matters:
    return "yes" if any(d.is_large for d in found) else "slightly"


def _names(found: Iterable[Deviation]) -> str:
    return ", ".join(dict.fromkeys(d.of for d in found))


def _of_estimates(
    found: Sequence[Deviation], inflation: Mapping[str, float], rows: OutlyingRows | None
) -> Verdict:
    number = "Components, Eρ² and Φ"
    outliers = _some(found, "outliers")
    by_level = _by_level(_some(found, "equal variances"))
    if outliers and rows is not None and rows.inflation >= _INFLATED:
        one = len(rows.labels) == 1
        alone = rows.one_cell and display.snapped(rows.share, _MOST_OF_IT) >= _MOST_OF_IT
        makes = f"{'It makes' if one else 'They make'} {display.percent(rows.share, 0)} of the "
        makes = f"{makes}residual sum of squares. " if alone else ""
        return Verdict(
            number, "strongly" if alone else "yes",
            f"Without {'; '.join(rows.labels)} the residual variance{rows.of} would be "
            f"{display.number(rows.without)} in place of {display.number(rows.variance)}. "
            f"{makes}Check "
            f"{'this result' if one else 'these results'}; correct or leave out what is an error, "
            "and fit again.",
        )  # fmt: skip
    if outliers:
        is_large = max(inflation.get(d.of, 1.0) for d in outliers) >= _INFLATED
        return Verdict(
            number, "yes" if is_large else "slightly",
            "Their estimates need no normal distribution, but squares of outliers weigh much "
            f"({_names(outliers)}): check them, and fit again without those that are errors."
            f"{by_level}",
        )  # fmt: skip
    unequal = _some(found, "equal variances", "uncorrelated", "uncorrelated effects")
    if unequal:
        return Verdict(
            number, "no",
            "They need no normal distribution. Error variances that differ enter as their mean, "
            "so that the coefficients hold on average, not for every comparison."
            f"{by_level}",
        )  # fmt: skip
    return Verdict(number, "no", "Their estimates need no normal distribution.")


def _by_level(unequal: Sequence[Deviation]) -> str:
    """Return what to write where residual variances differ much between levels of a facet."""
    most = max(unequal, key=lambda d: d.effect, default=None)
    if most is None or not most.is_large:
        return ""
    facet = most.of.removeprefix("residuals by ")
    return f" vcomp.fit(…, residual={facet!r}) estimates them by {display.levels_of(facet)}."


def _of_default_intervals(found: Sequence[Deviation], sizes: Mapping[str, int]) -> Verdict:
    number = "Default intervals (robust)"
    few = [facet for facet, n in sizes.items() if n < _MANY]
    tested = ("normality", "outliers", "equal variances")
    deviating = _some(found, *tested)
    if deviating and few:
        # Words first: "levels of sys or topics" could be levels of topics.
        words = map(display.levels_of, few)
        several = sorted(words, key=lambda name: name.startswith("levels of "))
        return Verdict(
            number, "slightly",
            "Their degrees of freedom come from the data, which show little with fewer than "
            f"{_MANY} {' or '.join(several)}.",
        )  # fmt: skip
    if _some(found, "uncorrelated"):
        return Verdict(
            number, "slightly",
            "They allow for any distribution and for unequal variances. They take the levels of "
            "a facet as independent, and levels whose residuals correlate are worth fewer.",
        )  # fmt: skip
    return Verdict(number, "no", "They allow for any distribution and for unequal variances.")


def _of_fixed_effects(
    found: Sequence[Deviation], slopes: Sequence[MissingSlope]
) -> Verdict | None:
    if not slopes:
        return None
    number = "Fixed effects, their tests and intervals"
    unequal = _some(found, "equal slopes")
    if not unequal:
        return Verdict(number, "no", "No effect of a covariate differs between levels.")
    of = {slope.test.of: slope for slope in slopes}
    words = [
        f"The effect of {x.covariate} differs between {display.levels_of(x.groups)}, with a "
        f"standard deviation of {display.number(x.sd, 3)} about {display.number(x.mean, 3)}: fit "
        f"{x.written} in place of {x.in_place_of}; the residual variance is then "
        f"{display.number(x.with_slopes)} in place of {display.number(x.residual)}."
        for x in (of[d.of] for d in unequal)
    ]
    return Verdict(number, _degree(unequal), " ".join(words))


def _of_normal_theory(found: Sequence[Deviation]) -> Verdict:
    number = "Intervals from normal theory (mls, f, satterthwaite, log, wald, profile, bootstrap)"
    deviating = _some(found, "normality", "outliers", "equal variances")
    if not deviating:
        return Verdict(number, "no", "No deviation from normal effects of one variance is shown.")
    heaviest = max((d for d in deviating if d.assumption == "normality"),
                   key=lambda d: d.effect, default=None)  # fmt: skip
    if heaviest is not None and heaviest.effect > 0.0:
        factor = float(np.sqrt(1.0 + 0.5 * heaviest.effect))
        return Verdict(
            number, _degree(deviating),
            f"With the kurtosis of {heaviest.of} a standard error is about "
            f"{display.number(factor, 2)} times that of normal theory; use the default.",
        )  # fmt: skip
    return Verdict(
        number, _degree(deviating), f"They assume normal effects of one variance, and "
        f"{_names(deviating)} deviate; use the default.",
    )  # fmt: skip


def _of_f_test(found: Sequence[Deviation], table: TableFindings) -> Verdict:
    column, row = table.table.column, table.table.row
    number = f"F test of {column} over {row}"
    about = (table.table.pairs, f"{column} with {row} effects", f"residuals by {column}")
    if not any(d.of in about and d.is_sure for d in found):
        return Verdict(number, "no", "No deviation from equal variances of differences is shown.")
    level = table.f_level
    matters: Matters = "no" if level < _F_SLIGHT else "slightly" if level < _F_LARGE else "yes"
    return Verdict(
        number, matters,
        f"With sphericity ε = {display.number(table.sphericity, 2)} the test at 5 % rejects a "
        f"true null in about {display.percent(level)}.",
    )  # fmt: skip


def _of_tau(
    found: Sequence[Deviation], sizes: Mapping[str, int], tables: Sequence[TableFindings]
) -> Verdict | None:
    if not tables:
        return None
    row = tables[0].table.row
    n = sizes[row]
    if n < _MANY and any(d.of == "residuals" for d in _some(found, "normality", "outliers")):
        return Verdict(
            "Eτ and Eτ_AP", "slightly",
            f"They take mean differences as normal; with {display.counted(n, row)} means "
            "of residuals of this distribution are not yet.",
        )  # fmt: skip
    return Verdict(
        "Eτ and Eτ_AP", "no",
        "Every pair has its own variance of differences, so that unequal variances and "
        "correlations are in it, and mean differences are nearly normal.",
    )  # fmt: skip


def _of_sizes(found: Sequence[Deviation], tables: Sequence[TableFindings]) -> Verdict:
    number = "Required sizes and D-studies"
    bent = _some(found, "additivity", "uncorrelated effects")
    if bent and tables:
        table, slope = tables[0].table, tables[0].slope
        text = (
            f"Differences between {display.levels_of(table.column)} depend on the effects of "
            f"{table.row}: the plan holds for {display.levels_of(table.row)} as easy and as hard "
            "as these, not for easier or harder ones."
        )
        power = 1.0 - slope * float(np.nanmean(table.values))
        usable = np.nanmin(table.values) >= 0.0 and abs(power) <= _LARGEST_POWER
        if _some(found, "additivity") and usable:
            text += (
                f" Scores to the power {display.number(power, 2)} would be more nearly additive."
            )
        return Verdict(number, _degree(bent), text)
    unequal = _some(found, "equal variances")
    if unequal:
        return Verdict(
            number, "slightly",
            "They hold on average; comparisons of levels with large residual variance need more.",
        )  # fmt: skip
    return Verdict(number, "no", "They follow from the components.")


def _of_draws(found: Sequence[Deviation]) -> Verdict:
    number = "Drawn data (res.simulate, res.bootstrap, simulate_effects)"
    deviating = _some(found, "normality", "equal variances", "uncorrelated", "additivity")
    if not deviating:
        return Verdict(number, "no", "They draw normal effects of one variance.")
    return Verdict(
        number, _degree(deviating),
        "They draw independent normal effects of one variance; vcomp.simulate.fit_collection "
        "draws scores with the observed distributions and correlations.",
    )  # fmt: skip
