"""The rules by which an assessor study decides, without fits, at their limits."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from vcomp.exceptions import DataError
from vcomp.studies.assessor_error import (
    AssessorStudy,
    _confounded,
    _kept,
    _read,
    _variance_of_roles,
)

NAN = float("nan")


def fits(*names, aic=(5.0, 4.0)):
    own = dict(zip(("roles", "individuals"), aic, strict=True))
    return {name: SimpleNamespace(aic=own.get(name, 0.0)) for name in names}


def p_values(**given):
    return pd.DataFrame({"p_value": given})


ALL = ("idiosyncratic", "roles", "individuals", "both")


@pytest.mark.parametrize(
    ("names", "p", "kept"),
    [
        (ALL, (0.01, 0.02, 0.001), ("roles", "individuals")),
        (ALL, (0.05, 0.02, 0.001), ("individuals",)),  # the level itself is not below it
        (ALL, (0.04, 0.05, 0.001), ("roles",)),
        (ALL, (0.2, 0.3, 0.001), ("individuals",)),  # by AIC
        (ALL, (0.2, 0.3, 0.05), ()),
        (ALL[:3], (0.01, 0.02, NAN), ("individuals",)),  # confounded: the one that fits better
        (ALL[:3], (0.01, 0.2, NAN), ("roles",)),
        (ALL[:2], (0.01, NAN, NAN), ("roles",)),
        (ALL[:2], (0.05, NAN, NAN), ()),
        (ALL[:1], (NAN, NAN, NAN), ()),
    ],
)
def test_effects_that_are_kept(names, p, kept):
    effects = zip(("roles", "individuals", "either"), p, strict=True)
    table = p_values(**{effect: value for effect, value in effects if not np.isnan(value)})
    assert _kept(fits(*names), table, 0.05) == kept
    if kept == ("individuals",) and p[1] >= 0.02 and p[0] != 0.05:
        assert _kept(fits(*names, aic=(3.0, 4.0)), table, 0.05) == ("roles",)


SCORES = pd.DataFrame(
    [(s, t, r, f"{r}{t % 2}") for s in "ab" for t in (1, 2, 3) for r in "xy"],
    columns=["system", "topic", "role", "assessor"],
)
USUAL = {name: name for name in ("system", "topic", "role", "assessor")}


@pytest.mark.parametrize(
    ("absent", "given", "columns"),
    [
        ([], {}, {"role", "assessor"}),
        # Under their usual names either may be absent.
        (["role"], {}, {"assessor"}),
        (["assessor"], {}, {"role"}),
        (["role", "assessor"], {}, None),
        (["assessor"], {"role": "part"}, {"role"}),
        (["role"], {"assessor": "judge"}, {"assessor"}),
        ([], {"role": "part"}, {"role", "assessor"}),
        (["assessor"], {"role": "part", "assessor": None}, {"role"}),
    ],
)
def test_columns_that_may_be_absent(absent, given, columns):
    names = USUAL | given
    table = SCORES.assign(score=np.arange(len(SCORES)) * 1.0).rename(
        columns={usual: name for usual, name in given.items() if name}
    )
    table = table.drop(columns=[name for name in absent if name in table])
    if columns is None:
        with pytest.raises(DataError, match="neither a column 'role' nor a column"):
            _read(table, "score", names)
    else:
        assert set(_read(table, "score", names)) & {"role", "assessor"} == columns


def test_assessments_are_numbered_within_topics_by_who_judges():
    read = _read(SCORES.assign(score=1.0), "score", USUAL)
    assert read["assessment"].tolist() == [1, 2] * 6
    for topic, rows in read.groupby("topic"):
        assert rows.groupby("assessment")["assessor"].nunique().tolist() == [1, 1], topic


def frame(rows):
    return pd.DataFrame(rows, columns=["topic", "role", "assessor"])


@pytest.mark.parametrize(
    ("rows", "roles", "individuals", "both"),
    [
        ([(1, "x", "A"), (2, "x", "B"), (2, "x", "A")], "one role only", None, "one role only"),
        (
            [(1, "x", "A"), (1, "y", "B"), (2, "x", "C"), (2, "y", "D")],
            None, "every assessor is in one topic only", "every assessor is in one topic only",
        ),
        (
            [(1, "x", "A"), (1, "y", "B"), (2, "x", "A"), (2, "y", "B")],
            None, None, "every role is that of one individual, who has no other",
        ),
        ([(1, "x", "A"), (1, "y", "B"), (2, "x", "B"), (2, "y", "A")], None, None, None),
        ([(1, "x", "A"), (1, "y", "B"), (2, "x", "C"), (2, "y", "B")], None, None, None),
        ([(1, "x", "A"), (1, "y", "B"), (2, "x", "A")], None, None,
         "every role is that of one individual, who has no other"),
    ],
)  # fmt: skip
def test_what_cannot_be_distinguished(rows, roles, individuals, both):
    for parts, why in (
        (("roles",), roles), (("individuals",), individuals), (("roles", "individuals"), both),
    ):  # fmt: skip
        found = _confounded(frame(rows), parts)
        assert (found is None) if why is None else (why in found)
    assert _confounded(frame(rows), ()) is None


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_variance_of_fixed_roles(k):
    """Of all k roles, the first of them zero, less the expectation of their errors."""
    rng = np.random.default_rng(k)
    names = ["Intercept", *(f"role[T.{r}]" for r in range(1, k)), "x"]
    beta = pd.Series(rng.normal(size=k + 1), names)
    root = 0.2 * rng.normal(size=(k + 1, k + 1))
    cov = pd.DataFrame(root @ root.T, names, names)
    res = SimpleNamespace(fe_params=beta, cov_params=lambda: cov)
    effects = np.array([0.0, *beta.iloc[1:k]])
    C = np.zeros((k, k))
    C[1:, 1:] = cov.iloc[1:k, 1:k]
    of_error = sum(C[i, i] + C[j, j] - 2 * C[i, j] for i in range(k) for j in range(k)) / (2 * k)
    expected = effects.var(ddof=1) - of_error / (k - 1)
    assert _variance_of_roles(res) == pytest.approx(max(expected, 0.0), rel=1e-12)
    small = SimpleNamespace(fe_params=beta * 1e-6, cov_params=lambda: cov)
    assert _variance_of_roles(small) == 0.0


def study(kept=(), p=None, share=(0.4, 0.2, 0.7), names=ALL, alpha=0.05, impossible=None):
    p = (
        {"roles": 0.3, "individuals": 0.4, "either": 0.5, "idiosyncratic": 0.01}
        if p is None
        else p
    )
    return AssessorStudy(
        fits=fits(*names), estimates=None, tests=p_values(**p), sources=pd.DataFrame(),
        idiosyncratic_share=share, kept=kept, impossible=impossible or {}, n_roles=3, alpha=alpha,
    )  # fmt: skip


def test_what_is_said_of_effects():
    said = study(("roles",), {"roles": 0.049, "individuals": 0.05}).answer()
    assert said[:2] == [
        (
            "Systematic error of roles (who serves as what) is found (p = 0.049, given the other "
            "effect)."
        ),
        (
            "Systematic error of individuals (who judges) is not found (p = 0.05, given the other "
            "effect)."
        ),
    ]
    said = study(("roles",), {"roles": 0.05, "individuals": 0.3}).answer()
    assert said[1] == "But one of both effects is needed; roles alone fit better, by AIC."
    alone = study(("roles",), {"roles": 0.01}, names=ALL[:2]).answer()
    assert alone[0].endswith("is found (p = 0.01).")
    assert not any("But one" in line for line in alone)
    nothing = study((), {}, names=ALL[:1]).answer()
    assert nothing[0] == "These data cannot show systematic error."
    why = study(impossible={"both": "there is one role only"}).answer()
    assert "The model 'both' is not possible: there is one role only." in why


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ((0.4, 0.2, 0.7), "40.0 % is idiosyncratic (95 %: 20.0 % to 70.0 %): it belongs"),
        ((0.4, 0.01, 0.97), "(95 %: 1.0 % to 97.0 %, which carries no information): it"),
        ((0.4, 0.0, 0.95), "(95 %: 0.0 % to 95.0 %): it"),
        ((0.9, 0.5, 1.0), "(95 %: 50.0 % to 100.0 %): it"),
        ((0.4, NAN, NAN), "40.0 % is idiosyncratic: it belongs"),
        ((NAN, NAN, NAN), None),
    ],
)
def test_what_is_said_of_the_share(share, words):
    text = " ".join(study(share=share).answer())
    assert ("Of the assessor error" in text) == (words is not None)
    assert words is None or words in text


@pytest.mark.parametrize(("p", "words"), [(0.049, "remains"), (0.05, "is not found")])
def test_what_is_said_of_single_assessments(p, words):
    text = " ".join(study(p={"idiosyncratic": p}).answer())
    assert f"beyond systematic effects, {words} (p = {p})." in text
    assert "beyond systematic" not in " ".join(study(p={}).answer())


@pytest.mark.parametrize(
    ("kept", "layout", "design", "plan", "fixed"),
    [
        ((), "individuals", "system x (assessor:topic)", "every assessment has its own", ()),
        (("individuals",), "crossed", "system x assessor x topic", "Let them change", ()),
        (("roles",), "roles", "system x role x topic", "the 3 roles are all", ("role",)),
        (("roles", "individuals"), "roles", "system x role x topic", "Let individuals", ("role",)),
    ],
)
def test_plans(kept, layout, design, plan, fixed):
    found = study(kept)
    assert (found.layout, found.design, found.fixed) == (layout, design, fixed)
    last = found.answer()[-1]
    assert last.startswith(f"Plan with {design.replace(' x ', ' × ')}: ")
    assert plan in last
