"""Coefficients of internal consistency as a value: a table, and how a person reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcomp import display

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BINARY", "SYMBOLS", "Reliability"]

SYMBOLS = {
    "alpha": "α (Cronbach)",
    "standardised_alpha": "α of standardised items",
    "KR20": "KR-20",
    "KR21": "KR-21",
    "lambda1": "λ₁ (Guttman)",
    "lambda2": "λ₂",
    "lambda4": "λ₄ (best halves)",
    "lambda5": "λ₅",
    "lambda6": "λ₆",
    "mean_correlation": "mean correlation of two items",
}
"""The coefficients in order, and how they are printed."""

BINARY = ("KR20", "KR21")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reliability:
    """Coefficients of internal consistency; ``print`` it.

    Attributes
    ----------
    alpha, alpha_low, alpha_high : Cronbach's alpha and its interval
    coefficients : all of them by name, those of :attr:`table`; nan where there is none
    reasons : name → why there is none
    sem_total, sem_mean : standard error of measurement s_X √(1 − α) of the total and of the mean
        over items, in the units of the scores
    mean, sd_total : mean score, and standard deviation of the totals (nan where they are not of
        the same items)
    n_objects, n_items : that the coefficients rest on
    n_missing : cells without a score
    missing : how they were treated, in words; empty where there are none
    interval_method : of the interval of alpha, in words
    significance : the interval has confidence 1 less this
    notes : what a reader should know of these numbers

    Examples
    --------
    >>> from vcomp.ctt import reliability
    >>> found = reliability([[1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1]])
    >>> found.table["estimate"].round(3)[["alpha", "KR20", "KR21"]].to_dict()
    {'alpha': 0.794, 'KR20': 0.794, 'KR21': 0.706}
    """

    alpha: float
    alpha_low: float
    alpha_high: float
    coefficients: Mapping[str, float]
    reasons: Mapping[str, str]
    sem_total: float
    sem_mean: float
    mean: float
    sd_total: float
    n_objects: int
    n_items: int
    n_missing: int
    missing: str
    interval_method: str
    significance: float
    notes: tuple[str, ...] = ()

    @property
    def standardised_alpha(self) -> float:
        """Alpha of the items with their variances made equal."""
        return self.coefficients["standardised_alpha"]

    @property
    def table(self) -> pd.DataFrame:
        """A row a coefficient: ``estimate``, ``low``, ``high``, and ``reason`` where it is nan.

        Rows are ``alpha``, ``standardised_alpha``, ``KR20`` and ``KR21`` (of items scored 0 or 1),
        ``lambda1``, ``lambda2``, ``lambda4``, ``lambda5``, ``lambda6`` (λ₃ is alpha) and
        ``mean_correlation``. Alpha has an interval, and so has KR-20, which is the same number.
        """
        import pandas as pd

        names = list(self.coefficients)
        ends = {"alpha": (self.alpha_low, self.alpha_high)}
        ends["KR20"] = ends["alpha"]
        nothing = (math.nan, math.nan)
        return pd.DataFrame(
            {
                "estimate": [self.coefficients[name] for name in names],
                "low": [ends.get(name, nothing)[0] for name in names],
                "high": [ends.get(name, nothing)[1] for name in names],
                "reason": [self.reasons.get(name, "") for name in names],
            },
            index=pd.Index(names, name="coefficient"),
        )

    def summary(self) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        rows = []
        own = {"alpha", "KR20"}
        for name, value in self.coefficients.items():
            if not math.isnan(value):
                interval = display.coefficient_interval(self.alpha_low, self.alpha_high)
                ends = interval if name in own else ""
                rows.append((SYMBOLS[name], display.coefficient(value), ends))
        rows.append(("standard error of the total", display.number(self.sem_total), ""))
        rows.append(("standard error of the mean score", display.number(self.sem_mean), ""))
        title = (
            f"Reliability of scores over {display.count(self.n_items)} items; "
            f"{display.count(self.n_objects)} objects"
        )
        headers = ["estimate", f"{display.level(self.significance)} interval"]
        table = display.simple_table(
            [row[1:] for row in rows], headers, title=title, stubs=[row[0] for row in rows]
        )
        return display.summary([table], self._explanations())

    def _explanations(self) -> list[str]:
        lines = [
            "α is the generalizability coefficient Eρ² of objects × items, with as many items.",
            f"{display.level(self.significance)} interval of α: {self.interval_method}.",
        ]
        if self.missing:
            lines.insert(0, self.missing)
        by_reason: dict[str, list[str]] = {}
        for name, why in self.reasons.items():
            if name in BINARY:
                continue  # no one misses them where scores are not 0 or 1
            by_reason.setdefault(why, []).append(SYMBOLS[name])
        lines += [f"Not given: {', '.join(names)}: {why}." for why, names in by_reason.items()]
        return lines + list(self.notes)

    def __str__(self) -> str:
        return str(self.summary())

    def __repr__(self) -> str:
        value = display.coefficient(self.alpha)
        return f"Reliability(alpha={value}, objects={self.n_objects}, items={self.n_items})"

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())
