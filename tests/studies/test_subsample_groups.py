"""Studies of random parts of the data in which levels are drawn by group: B08, section 4.6."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.model.row_access import fitted_again
from vcomp.studies.subsample import GroupedLevels, Subsets

FORMULA = "score ~ (1|sys) + (1|topic)"
SIZES = (1, 2, 2, 3, 1)
NAMES = [f"{org}{run}" for org, n in zip("ABCDE", SIZES, strict=True) for run in range(n)]


def org(name):
    return name[0]


@pytest.fixture(scope="module")
def frame():
    """Runs of one organisation are variants of one system: simulated groups."""
    rng = np.random.default_rng(11)
    own = {name: rng.normal() for name in "ABCDE"}
    topics = rng.normal(size=30)
    rows = [
        {"sys": name, "topic": t, "score": own[name[0]] + 0.1 * float(name[1]) + topics[t]}
        for name in NAMES
        for t in range(30)
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(score=frame["score"] + rng.normal(size=len(frame)))


def test_one_of_each_group_is_drawn_and_all_are_equally_likely():
    grouped = GroupedLevels("sys", np.array([ord(name[0]) - 65 for name in NAMES]))
    rng = np.random.default_rng(1)
    for most, count in ((1, 5), (2, 8), (3, 9)):
        assert grouped.n_levels(most) == count
        drawn = np.array([grouped.draw(count, rng) for _ in range(3000 if most == 1 else 20)])
        for levels in drawn[:20]:
            taken = np.bincount(grouped.groups[levels])
            assert taken.tolist() == np.minimum(SIZES, most).tolist()
            assert (np.diff(levels) > 0).all()
        if most == 1:
            shares = np.bincount(drawn.ravel()) / 3000
            np.testing.assert_allclose(shares, 1.0 / np.repeat(SIZES, SIZES), atol=0.035)


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "a cell missing"])
def test_subsets_are_fits_of_one_run_of_each_organisation(frame, missing):
    data = frame.drop(index=[17]).reset_index(drop=True) if missing else frame
    study = vcomp.subsample_study(
        FORMULA, data, sizes={"topic": 10, "sys": [1, 2]}, groups={"sys": org}, trials=4, rng=3,
        method="reml" if missing else "anova",
    )  # fmt: skip
    assert study.frame["sys"].unique().tolist() == [5, 8]
    fit, design = fitted_again(study.results)
    codes = np.array([ord(name[0]) - 65 for name in NAMES])
    subsets = Subsets.of(
        fit, design, study.results.components, ("topic", "sys"), GroupedLevels("sys", codes)
    )
    for place, n_systems in enumerate((5, 8)):
        for trial in range(4):
            seeds = np.random.SeedSequence(3, spawn_key=(10, n_systems, trial))
            sample = subsets.drawn(
                {"topic": 10, "sys": n_systems}, np.random.Generator(np.random.PCG64(seeds))
            )
            part = data.iloc[sample.rows]
            runs = part.groupby(part["sys"].map(org))["sys"].nunique()
            assert runs.tolist() == np.minimum(SIZES, place + 1).tolist()
            expected = vcomp.fit(FORMULA, part, method=study.results.method.lower()).vcomp
            # REML stops within a tolerance, from another start.
            np.testing.assert_allclose(
                study.replicates.values[4 * place + trial], expected,
                rtol=1e-5 if missing else 1e-9, atol=1e-12,
            )  # fmt: skip
    printed = str(study.summary())
    assert "drawn by group" in printed
    assert "5 levels of sys are one of each" in printed


def test_variants_of_systems_make_their_component_smaller():
    """Without noise: m copies of each of g systems have the component g(m-1)/(gm-1) too small."""
    own, topics = np.array([0.3, -0.4, 0.1, 0.9, 0.5]), np.random.default_rng(2).normal(size=20)
    scores = np.random.default_rng(3).normal(size=(5, 20)) / 50 + own[:, None] + topics
    data = pd.DataFrame(
        [
            {"sys": f"{name}{run}", "topic": t, "score": scores[s, t]}
            for s, name in enumerate("ABCDE")
            for run in range(3)
            for t in range(20)
        ]
    )
    study = vcomp.subsample_study(
        FORMULA, data, sizes={"sys": 1}, groups={"sys": org}, trials=5, rng=1
    )
    table = study.table.set_index("quantity")
    assert table.loc["sys", "sd"] == pytest.approx(0.0, abs=1e-12)
    # A share of the residual is in both, a thousandth of the component of systems.
    assert table.loc["sys", "full"] / table.loc["sys", "mean"] == pytest.approx(12 / 14, rel=1e-3)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"sizes": {"sys": 0}}, vcomp.EstimationError, "between 1 and 3, the levels of the larg"),
        (
            {"sizes": {"sys": 4}},
            vcomp.EstimationError,
            "which has groups, must be between 1 and 3",
        ),
        ({"sizes": {"topic": 5}}, vcomp.PlanError, "groups= takes one drawn facet"),
        ({"groups": {"sys": {"A0": 1}}}, vcomp.DataError, "'B0' of 'sys' has no group"),
        ({"groups": org}, vcomp.PlanError, "groups= takes one drawn facet"),
    ],
)
def test_mistakes(frame, given, error, message):
    with pytest.raises(error, match=message):
        vcomp.subsample_study(
            FORMULA, frame, **{"sizes": {"sys": 1}, "groups": {"sys": org}, "trials": 2} | given
        )


def test_nested_facets_have_no_groups(frame):
    data = frame.assign(org=frame["sys"].map(org))
    with pytest.raises(vcomp.DataError, match="'sys' is nested in org"):
        vcomp.subsample_study(
            "score ~ (1|org/sys) + (1|topic)", data, sizes={"sys": 1}, groups={"sys": org}
        )


def test_as_many_as_the_largest_group_has_are_all(frame):
    study = vcomp.subsample_study(
        FORMULA, frame, sizes={"sys": max(SIZES)}, groups={"sys": org}, trials=1
    )
    assert study.frame["sys"].tolist() == [len(NAMES)]
