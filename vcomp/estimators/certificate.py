"""The numbers that show that an iteration has ended at a maximum, and their reading in words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

from vcomp import display

__all__ = ["Certificate"]

_LINE = 92


@dataclass(frozen=True, slots=True, repr=False)
class Certificate:
    """The numbers that show that an iteration has ended at a maximum; printed, in words.

    Attributes
    ----------
    free : components estimated above zero
    bounded : components estimated at their bound, zero
    bound_scores : the score of each bounded component, its multiplier; negative means that the
        likelihood falls from zero on
    kkt_residual : the largest violation of the first-order conditions, with every score multiplied
        by its component (for a bounded one by the total variance), so that it has no unit
    newton_decrement : √(s' I⁻¹ s) on the free components: how far the maximum is, in standard
        errors
    information_eigenvalues : of the information of the free components scaled to a unit diagonal;
        all positive at a proper maximum
    iterations, evaluations : steps taken, and evaluations of the likelihood
    at_maximum : whether all of this shows a maximum
    held : components that were given and not estimated
    information : which information the eigenvalues and standard errors are of, ``"observed"`` or
        ``"average"``
    flat : combinations of components along which the likelihood is flat, in words
    tolerance : the decrement that was asked for; a larger one at a maximum means that rounding
        ended the iteration
    engine, reason : what computed the likelihood, and why that
    seconds : of each stage
    """

    free: tuple[str, ...]
    bounded: tuple[str, ...]
    bound_scores: Mapping[str, float]
    kkt_residual: float
    newton_decrement: float
    information_eigenvalues: tuple[float, ...]
    iterations: int
    evaluations: int
    at_maximum: bool = True
    held: tuple[str, ...] = ()
    information: str = "observed"
    flat: tuple[str, ...] = ()
    tolerance: float = 1e-10
    engine: str = ""
    reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [self._ending(), self._components(), self._information(), self._effort()]
        if self.engine:
            lines.append(f"Engine: {self.engine} ({self.reason}).")
        return "\n".join(textwrap.fill(x, _LINE, subsequent_indent="  ") for x in lines if x)

    def _ending(self) -> str:
        what = "At a maximum" if self.at_maximum else "NOT shown to be a maximum"
        tolerance = f"tolerance {display.number(self.tolerance, 2)}"
        if self.at_maximum and self.newton_decrement > self.tolerance:
            tolerance += ", ended by rounding"
        return (
            f"{what}: Newton decrement {display.number(self.newton_decrement, 2)} standard errors "
            f"({tolerance}), first-order residual {display.number(self.kkt_residual, 2)}."
        )

    def _components(self) -> str:
        parts = [f"free: {', '.join(self.free)}" if self.free else "none is free"]
        if self.bounded:
            scores = ", ".join(
                f"{name} (score {display.number(score, 3)})"
                for name, score in self.bound_scores.items()
            )
            parts.append(f"at the bound 0: {scores}")
        if self.held:
            parts.append(f"held: {', '.join(self.held)}")
        return f"Components: {'; '.join(parts)}."

    def _information(self) -> str:
        if not self.information_eigenvalues:
            return ""
        least, most = min(self.information_eigenvalues), max(self.information_eigenvalues)
        verdict = "positive definite" if least > 0.0 else "NOT positive definite"
        text = (
            f"{self.information.capitalize()} information of the free components: {verdict} "
            f"(eigenvalues {display.number(least, 3)} to {display.number(most, 3)} on a unit "
            "diagonal)."
        )
        return f"{text} Flat along {'; '.join(self.flat)}." if self.flat else text

    def _effort(self) -> str:
        text = f"{_counted(self.iterations, 'step')}, {_counted(self.evaluations, 'evaluation')}"
        if not self.seconds:
            return f"{text}."
        stages = ", ".join(
            f"{stage} {display.number(seconds, 2)}" for stage, seconds in self.seconds.items()
        )
        return f"{text}, {display.number(sum(self.seconds.values()), 2)} s ({stages})."


def _counted(n: int, word: str) -> str:
    return f"{n} {word}{'' if n == 1 else 's'}"
