"""What a certificate says, number by number."""

from dataclasses import replace

import pytest

from vcomp.estimators import Certificate
from vcomp.estimators.estimate import OtherMaximum

BASE = Certificate(
    free=("a", "Residual"),
    bounded=(),
    bound_scores={},
    kkt_residual=3e-9,
    newton_decrement=2e-11,
    information_eigenvalues=(0.5, 1.5),
    iterations=7,
    evaluations=9,
)


def said(certificate):
    return " ".join(repr(certificate).split())


def test_a_maximum():
    assert said(BASE) == (
        "At a maximum: Newton decrement 2e-11 standard errors (tolerance 1e-10), first-order "
        "residual 3e-9. Components: free: a, Residual. Observed information of the free "
        "components: positive definite (eigenvalues 0.5 to 1.5 on a unit diagonal). 7 steps, 9 "
        "evaluations."
    ).replace("3e-9", "3e-09")


@pytest.mark.parametrize(
    ("changes", "words", "others"),
    [
        ({"at_maximum": False}, "NOT shown to be a maximum: Newton", "At a maximum"),
        ({"newton_decrement": 1.1e-10}, "(tolerance 1e-10, ended by rounding error)", "1e-10)"),
        ({"newton_decrement": 1e-10}, "(tolerance 1e-10)", "rounding"),
        ({"newton_decrement": 1.0, "at_maximum": False}, "(tolerance 1e-10)", "rounding"),
        ({"tolerance": 1e-6}, "(tolerance 1e-06)", "rounding"),
        ({"free": ()}, "Components: none is free.", "free:"),
        (
            {"bounded": ("b", "c"), "bound_scores": {"b": -1.5, "c": -0.25}},
            "free: a, Residual; at the bound 0: b (derivative -1.5), c (derivative -0.25).",
            "held",
        ),
        ({"held": ("b",)}, "free: a, Residual; held: b.", "bound"),
        ({"information": "average"}, "Average information of the free", "Observed"),
        (
            {"information_eigenvalues": (0.0, 2.0)},
            "NOT positive definite (eigenvalues 0 to 2 on",
            ": positive",
        ),
        ({"information_eigenvalues": (1e-3, 2.0)}, "definite (eigenvalues 0.001 to 2 ", "NOT"),
        ({"information_eigenvalues": ()}, "Components: free: a, Residual. 7 steps", "eigen"),
        ({"flat": ("a + b", "b − c")}, "diagonal). Flat along a + b; b − c.", "NOT"),
        ({"iterations": 1, "evaluations": 1}, "1 step, 1 evaluation.", "steps"),
        ({"iterations": 0, "evaluations": 2}, "0 steps, 2 evaluations.", "step,"),
        (
            {"seconds": {"read": 0.25, "fit": 0.5}},
            "9 evaluations, 0.75 s (read 0.25, fit 0.5).",
            "evaluations. ",
        ),
        ({"engine": "strata", "reason": "as it is"}, "Engine: strata (as it is).", "NOT"),
        (
            {"others": (OtherMaximum(0.5, {"a": 0.0, "Residual": 2.0}),)},
            "Another maximum is 0.5 lower, at σ²(a) = 0, σ²(Residual) = 2. 7 steps",
            "Engine",
        ),
    ],
)
def test_what_else_there_may_be(changes, words, others):
    found = said(replace(BASE, **changes))
    assert words in found
    assert others not in found
    assert max(len(line) for line in repr(replace(BASE, **changes)).splitlines()) <= 92
