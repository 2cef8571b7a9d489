"""Limits of sums are not below those of their parts where the rest is estimated at zero."""

from __future__ import annotations

import warnings
from itertools import combinations, islice

import numpy as np
import pytest

import vcomp
from tests.helpers.cases import alternately
from vcomp import display
from vcomp.presets import gauge_rr

TERMS = ("part", "operator", "part:operator")


def fits(method):
    """Yield fits of small random gauge studies that have a component of zero, and one above."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p, o, _ = (np.ravel(x) for x in np.indices((6, int(rng.integers(2, 5)), 2)))
        sizes = rng.permutation([1.0, 0.4, 0.0])
        y = sizes[0] * rng.normal(size=6)[p] + sizes[1] * rng.normal(size=5)[o]
        y += sizes[2] * rng.normal(size=(6, 5))[p, o] + 0.5 * rng.normal(size=p.size)
        # Henderson's Method I has no mean squares for some incomplete data.
        keep = rng.random(p.size) < (1.0 if seed % 3 or method == "anova" else 0.9)
        data = {"part": p[keep], "operator": o[keep], "y": y[keep]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            res = vcomp.fit("y ~ (1|part) + (1|operator) + (1|part:operator)", data, method=method)
        if (res.vcomp.iloc[:3] <= 0.0).any():
            yield res


@pytest.fixture(scope="module", params=["reml", "anova"])
def bounded(request):
    found = list(islice(fits(request.param), 12))
    assert len(found) == 12
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("interval", "first"), alternately(["mls", "log", "robust", "wald"], 0, 1)
)
def test_sums_of_components(bounded, interval, first):
    for res in bounded[first::2]:
        positive = {t: res.vcomp[t] > 0.0 for t in TERMS}
        for several in [*combinations(TERMS, 2), TERMS]:
            part = [t for t in several if positive[t]]
            if not part or len(part) == len(several):
                continue
            options = {"interval": interval, "negative": "zero"}
            whole = res.quantity(" + ".join(several), **options)
            own = res.quantity(" + ".join(part), **options)
            assert whole.estimate == pytest.approx(own.estimate, rel=1e-12)
            assert whole.low >= own.low - 1e-9 * abs(own.low)
            assert whole.high >= own.high * (1.0 - 1e-9)
            assert whole.low <= whole.estimate <= whole.high


@pytest.mark.slow
@pytest.mark.parametrize("interval", ["mls", "robust"])
def test_coefficients_of_designs(bounded, interval):
    """Φ is never above Eρ², of which it is another number only where operators differ."""
    for res in bounded:
        if res.vcomp["operator"] > 0.0 or not res.vcomp["part"] > 0.0:
            continue
        options = {"interval": interval, "negative": "zero", "operator": 3, "object": "part"}
        relative, absolute = (res.quantity(name, **options) for name in ("Erho2", "Phi"))
        assert absolute.estimate == pytest.approx(relative.estimate, rel=1e-12)
        assert absolute.low <= relative.low * (1.0 + 1e-9)
        assert absolute.high <= relative.high * (1.0 + 1e-9)


def test_sources_of_a_gauge(bounded):
    """Reproducibility is operators and their interaction, which is zero in some of the studies."""
    for res in bounded:
        if res.vcomp["part:operator"] > 0.0 or not res.vcomp["operator"] > 0.0:
            continue
        table = gauge_rr(res, "part", "operator", interval="mls").table
        for low, high in (("low", "high"), ("percent_study_low", "percent_study_high")):
            for column in (low, high):
                own, whole = table.loc[["operator", "reproducibility"], column]
                assert whole >= own * (1.0 - 1e-9)


NONE = "An upper limit of ∞ is no limit: the data have too few levels"
NOTHING = "An interval [0.000, 1.000] excludes nothing: the data have too few levels"


@pytest.mark.slow
def test_open_intervals_have_a_reason_under_the_table(bounded):
    seen = set()
    for res in bounded[::2]:
        for alpha in (0.05, 1e-4):
            study = res.dstudy(operator=2, object="part", alpha=alpha, interval="log")
            tables = {
                "summary": res.summary(alpha=alpha),
                "D-study": study.summary(),
                "gauge": gauge_rr(res, "part", "operator", alpha=alpha, interval="mls").summary(),
            }
            for name, table in tables.items():
                text = " ".join(str(table).split())
                assert ("∞]" in text) == (NONE in text)
                assert ("[0.000, 1.000]" in text.replace(NOTHING, "")) == (NOTHING in text)
                seen |= {(name, NONE in text), (name, NOTHING in text)}
            found = res.quantity("operator", interval="mls", alpha=alpha)
            assert np.isinf(found.high) == (display.NO_LIMIT in str(found))
    assert {("summary", True), ("gauge", True)} <= seen
