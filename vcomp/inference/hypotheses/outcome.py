"""What a test says: a value that prints as a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from vcomp import display

__all__ = [
    "HypothesisTest",
]


@dataclass(frozen=True, slots=True)
class HypothesisTest:
    """The outcome of one test.

    Attributes
    ----------
    term : what was tested: a component, or contrasts of fixed effects
    test : in words
    symbol : of the statistic, such as ``"F"``
    statistic : its value
    distribution : under the hypothesis, in words: ``"F(5, 24)"``, ``"½χ²₀ + ½χ²₁"``
    df : degrees of freedom: two of F, one of a χ², those of a mixture's parts
    p_value : probability of a statistic as large or larger if the hypothesis holds
    estimate : of the component, nan for contrasts of several rows
    p_error : Monte Carlo standard error of the p-value, 0 where nothing is simulated
    exact : whether the distribution is exact under normality, for any sample size
    notes : sentences: why this test, and what to know of it
    """

    term: str
    test: str
    symbol: str
    statistic: float
    distribution: str
    df: tuple[float, ...]
    p_value: float
    estimate: float
    p_error: float = 0.0
    exact: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        p = display.p_value(self.p_value)
        if self.p_error > 0.0:
            p += f" ± {display.number(self.p_error, 2)} (Monte Carlo)"
        first = (
            f"{self.term}: {self.symbol} = {display.number(self.statistic)}, {p}; {self.test}, "
            f"{self.distribution}."
        )
        return "\n".join([first, *self.notes])
