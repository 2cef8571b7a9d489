"""Printed sentences have the user's names of what is compared and of what it is observed on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp import ir

RNG = np.random.default_rng(3)
WIDE = RNG.normal(size=(12, 5)) + RNG.normal(size=5) + RNG.normal(size=(12, 1))
LONG = pd.DataFrame(
    {
        "model": np.tile([f"m{k}" for k in range(5)], 12),
        "query": np.repeat([f"q{k}" for k in range(12)], 5),
        "acc": WIDE.ravel(),
    }
)
NAMED = {"system": "model", "topic": "query", "score": "acc"}


def sums(matrix):
    """Return the mean squares of the components of accuracy, by the formulas of two ways."""
    rest = matrix - matrix.mean(0) - matrix.mean(1, keepdims=True) + matrix.mean()
    return matrix.shape[0] * matrix.mean(0).var(ddof=1), (rest**2).sum() / 44.0


def test_comparisons_of_systems():
    found = ir.compare_systems(LONG, **NAMED)
    text = str(found)
    assert text.startswith("Differences between models: paired t-test")
    assert "queries   difference" in text
    assert "Two models share a letter" in text
    assert "system" not in text
    assert "topic" not in text
    assert (found.facet, found.groups.index.name) == ("model", "model")
    plain = ir.compare_systems(WIDE)
    np.testing.assert_array_equal(found.table["p_value"], plain.table["p_value"])
    assert list(found.table) == list(plain.table)
    gaps = str(ir.compare_systems(LONG.drop(index=3), test="bootstrap", n=99, **NAMED))
    assert "compared on the queries that both have (11 to 12 of 12)" in gaps
    assert "(queries drawn with replacement)" in gaps
    few = LONG[(LONG["model"] != "m0") | (LONG["query"] == "q1")]
    with pytest.raises(vcomp.DataError, match="models 'm1' and 'm0' have fewer than two queries"):
        ir.compare_systems(few, **NAMED)


def test_accuracies():
    found = ir.accuracy(LONG, ["Erho2", "tau"], **NAMED)
    text = str(found)
    assert text.startswith("Accuracy of tests of n queries, estimated from 5 models × 12 queries")
    assert "system" not in text
    assert "topic" not in text
    systems, rest = sums(WIDE)
    assert found.table["estimate"][0] == pytest.approx(1.0 - rest / systems, rel=1e-12)
    assert "queries are needed" in str(found.required("Erho2", 0.95))


def test_diagnoses():
    text = str(vcomp.diagnose(LONG, n=19, **NAMED))
    assert "residuals of every two models over query" in text
    assert text.startswith("Assumptions of 5 models × 12 queries")
    assert "system" not in text
    assert "topic" not in text


def test_parts_keep_their_names_and_reserved_ones_are_not_taken():
    matrix = ir.as_score_matrix(LONG, **NAMED)
    assert matrix.facets == matrix.select(systems=["m1", "m2"]).facets == ("model", "query")
    assert ir.as_score_matrix(WIDE).facets == ("system", "topic")
    renamed = LONG.rename(columns={"model": "a:b"})
    assert ir.as_score_matrix(renamed, **(NAMED | {"system": "a:b"})).facets == ("system", "topic")


def test_objects_of_d_studies_are_several():
    data = LONG.rename(columns={"acc": "score"})
    study = vcomp.fit("score ~ (1|model) + (1|query)", data).dstudy(query=[10, 20])
    assert "how reliable differences between models are" in str(study)
    assert "how reliable absolute scores of models are" in str(study)


def test_levels_of_plans_are_several():
    values = {"model": 4.0, "query": 2.0, "model:query": 1.0, "query:judge": 0.0, "Residual": 3.0}
    study = vcomp.from_components(values).dstudy(query=1, judge=1)
    best = study.optimize("4*query + query:judge", budget=100, bounds={"judge": (1, 1)})
    assert "20 queries, 1 judge in each query; costs 100" in " ".join(str(best).split())
    needed = study.required(0.95, facet="judge")
    assert "does not fall with more judges" in str(needed)
