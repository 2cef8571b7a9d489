"""The findings of the study in words, with numbers from the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill

import numpy as np

from benchmarks.coverage.methods import NORMAL_THEORY
from benchmarks.coverage.study import Row

SYMBOLS = {"rel_err_var": "σ²(δ)", "abs_err_var": "σ²(Δ)", "Erho2": "Eρ²", "Phi": "Φ"}
"""How quantities of a D-study are written."""

EXPECTED = "mls, expected information"


def findings(rows: Sequence[Row]) -> str:
    """Return the section of findings, a paragraph each; those without rows are left out."""
    of = _Chosen(rows)
    said = [fill(part, 99, break_on_hyphens=False) for part in (make(of) for make in _PARTS)]
    return "\n\n".join(["## What was found", *(part for part in said if part)])


class _Chosen:
    """Rows by what they are about."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(
        self,
        method: str,
        *,
        quantity: str | Callable[[str], bool] | None = None,
        cell: str | None = None,
        estimator: str = "reml",
        distribution: str = "normal",
        near_zero: bool | None = False,
    ) -> list[Row]:
        holds = quantity if callable(quantity) else lambda q: quantity in (None, q)
        return [
            r
            for r in self._rows
            if (r.method, r.estimator, r.distribution) == (method, estimator, distribution)
            and cell in (None, r.cell)
            and holds(r.quantity)
            and near_zero in (None, r.near_zero)
        ]


def _is_component(quantity: str) -> bool:
    return not quantity.startswith("share") and quantity not in (
        "rel_err_var", "abs_err_var", "Erho2", "Phi",
    )  # fmt: skip


def _is_effect(quantity: str) -> bool:
    return _is_component(quantity) and quantity != "Residual"


def _span(rows: Sequence[Row]) -> str:
    """Return lowest and highest coverage."""
    if not rows:
        return "–"
    low, high = (100.0 * f(r.coverage for r in rows) for f in (min, max))
    return f"{low:.1f} %" if round(low, 1) == round(high, 1) else f"{low:.1f} to {high:.1f} %"


def _lowest(rows: Sequence[Row]) -> str:
    """Return where the coverage is lowest."""
    if not rows:
        return "–"
    row = min(rows, key=lambda r: r.coverage)
    return (
        f"{100.0 * row.coverage:.1f} % ({SYMBOLS.get(row.quantity, row.quantity)} of `{row.cell}`)"
    )


def _mean_width(rows: Sequence[Row]) -> str:
    return f"{np.median([r.width for r in rows]):.2f}" if rows else "–"


def _normal_theory(of: _Chosen) -> str:
    auto = of(NORMAL_THEORY)
    few = of(NORMAL_THEORY, cell="s6xt5", near_zero=None)
    return f"""\
**Normal theory has the coverage that is claimed.** It is the modified large sample interval
(`"mls"`; Graybill and Wang 1980; Ting et al. 1990) from the mean squares of the estimates; for Eρ²
of a complete two-way table Feldt's exact F, for Φ the interval of Arteaga et al. (`"f"`). Away
from zero and with normal effects its coverage is {_span(auto)}, in balanced and unbalanced
designs; with 6 systems and 5 topics it is {_span(few)}. It also exists where a variance is zero or
nearly zero, and there covers {_span(of(NORMAL_THEORY, near_zero=True))}; at exactly zero more than
95, as a lower limit of 0 cannot be above the true value.
"""


def _rivals(of: _Chosen) -> str:
    near = of("log", near_zero=True)
    none = max((r.none for r in near), default=0.0)
    sums = of("satterthwaite", quantity="abs_err_var", near_zero=None)
    return f"""\
**Other methods.** Satterthwaite's interval is as good for single components, but not for sums of
unlike variances: its coverage of σ²(Δ) is {_span(sums)}, lowest with few topics. The delta method
on the log scale covers components in {_span(of("log", quantity=_is_effect))}; it has no interval
where the estimate is zero ({100.0 * none:.0f} % of the data sets at worst), and those that it has
near zero cover {_span(near)}. Wald's symmetric interval is too short for components with few
levels: {_lowest(of("wald", quantity=_is_effect, near_zero=None))}. Profile likelihood covers
components in {_span(of("profile", quantity=_is_effect))} and Eρ² in
{_span(of("profile", quantity="Erho2"))} where they are away from zero, and takes tens of times as
long.
"""


def _phi(of: _Chosen) -> str:
    cells = ("s30xt50", "s100xt50", "s20xt25", "s30xt50-alike", "s6xt50")
    arteaga = [r for c in cells for r in of(NORMAL_THEORY, quantity="Phi", cell=c)]
    mls = [r for c in cells for r in of("mls", quantity="Phi", cell=c)]
    if not mls:
        return ""
    closer = sum(
        abs(m.coverage - 0.95) < abs(a.coverage - 0.95) for a, m in zip(arteaga, mls, strict=True)
    )
    few = [
        of(method, quantity="Phi", cell="s6xt5", near_zero=None)
        for method in (NORMAL_THEORY, "mls")
    ]
    return f"""\
**Φ of a complete two-way table.** Arteaga's interval is wider than necessary: it covers
{_span(arteaga)}, and the modified large sample interval {_span(mls)} with {_mean_width(mls)} of
its width (median; {min(r.width for r in mls):.2f} at best, with 100 systems). The latter is closer
to 95 % in {closer} of {len(mls)} designs; with 6 systems and 5 topics the two cover
{_span(few[0])} and {_span(few[1])}. Arteaga's interval remains that of `"f"`, as it has been
published for TREC collections; `interval="mls"` gives the shorter one.
"""


def _information(of: _Chosen) -> str:
    expected = of(EXPECTED)
    observed = {(r.cell, r.quantity): r for r in of(NORMAL_THEORY)}
    pairs = [(observed[r.cell, r.quantity], r) for r in expected]
    if not pairs:
        return ""
    apart = max(abs(a.coverage - b.coverage) for a, b in pairs)
    mean = [
        100.0 * float(np.mean([r.coverage for r in side])) for side in zip(*pairs, strict=True)
    ]
    return f"""\
**Observed or expected information.** In unbalanced designs mean squares are made from the
covariance matrix of the estimates. With the observed information the mean coverage of
{len(pairs)} quantities is {mean[0]:.2f} %, with the expected information {mean[1]:.2f} %. They
never differ by more than {100.0 * apart:.1f} points, and the median ratio of widths is
{_mean_width(expected)}. There is no reason to prefer the expected information; standard errors
use the observed one as well.
"""


def _conservative(of: _Chosen) -> str:
    many = [r for c in ("pxaxdi", "pxaxdi-uneven") for r in of("mls", cell=c)]
    shares = [r for r in many if r.quantity.startswith("share")]
    if not many:
        return ""
    return f"""\
**Many mean squares of both signs.** In p × a × (d:i) a component is a combination of up to eight
mean squares, half of them with a negative sign. The modified large sample interval is hardly too
wide there: components are covered in {_span([r for r in many if _is_component(r.quantity)])} (mean
{100.0 * np.mean([r.coverage for r in many if _is_component(r.quantity)]):.1f} %), shares in
{_span(shares)} (mean {100.0 * np.mean([r.coverage for r in shares]):.1f} %).
"""


def _ml(of: _Chosen) -> str:
    ml = of(NORMAL_THEORY, estimator="ml", near_zero=None)
    anova = of(NORMAL_THEORY, estimator="anova")
    if not ml:
        return ""
    return f"""\
**ML and ANOVA.** Intervals from ML estimates inherit their negative bias, which matters with few
levels: the lowest coverage is {_lowest(ml)}. Intervals from ANOVA estimates cover {_span(anova)};
for unbalanced data they are up to {100.0 * (max(r.width for r in anova) - 1.0):.0f} % wider than
REML's.
"""


def _resampling(of: _Chosen) -> str:
    kinds = {k: of(f"bootstrap, {k}") for k in ("percentile", "basic", "bias-corrected")}
    if not kinds["percentile"]:
        return ""
    said = "; ".join(f"{k}: {_span(found)}" for k, found in kinds.items())
    by_facet = [
        f"{name}: {_span(found)}"
        for name in ("jackknife over s", "jackknife over t", "bootstrap over s",
                     "bootstrap over t")
        if (found := of(name, estimator="anova"))
    ]  # fmt: skip
    tail = ""
    if by_facet:
        tail = f"""\
The jackknife and the bootstrap over one facet of 20 systems × 25 topics measure another thing: the
sampling error due to the levels of that facet alone. For quantities that depend on both facets
their coverage is far from 95 % ({"; ".join(by_facet)}).
"""
    return f"""\
**Bootstrap.** Of intervals from 300 parametric replicates ({said}) the basic ones, reflected on
the log or logit scale, are closest to 95 %. With few levels the distribution of an estimate is
skewed, and its percentiles are too low. {tail}"""


def _heavy(of: _Chosen) -> str:
    t5 = of(NORMAL_THEORY, distribution="t5")
    chi2 = of(NORMAL_THEORY, distribution="chi2")
    if not t5:
        return ""
    residual = [r for r in (*t5, *chi2) if r.quantity == "Residual"]
    coefficients = [r for r in (*t5, *chi2) if r.quantity in ("Erho2", "Phi")]
    others = ("t5", "chi2")
    own, rho = (
        [
            r
            for d in others
            for r in of("jackknife over s", quantity=q, estimator="anova", distribution=d)
        ]
        for q in ("s", "Erho2")
    )
    of_default = [r for r in (*t5, *chi2) if r.cell == "s20xt25" and r.quantity in ("s", "Erho2")]
    return f"""\
**Effects that are not normal: the claim fails.** All these intervals use the variance that a
variance estimate has under the normal distribution. With a kurtosis above 3 it is larger, and more
data do not help. With t₅ they cover {_span(t5)}, with χ²₄ {_span(chi2)}. Components with
the most degrees of freedom have the lowest coverage (Residual: {_span(residual)}); Eρ² and Φ have
a higher one ({_span(coefficients)}). The jackknife over a facet assumes no distribution of its
effects: over systems it covers σ²(s) in {_span(own)} and Eρ² in {_span(rho)} of the same data (20
systems × 25 topics), where normal theory covers {_span(of_default)}.
"""


_PARTS: tuple[Callable[[_Chosen], str], ...] = (
    _normal_theory,
    _rivals,
    _phi,
    _information,
    _conservative,
    _ml,
    _resampling,
    _heavy,
)
