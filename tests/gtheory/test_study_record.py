"""Which notes a D-study has, and sizes as whole numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp.gtheory import from_components

KINDS = {
    "zero": "is replaced by 0",
    "kept": "is negative and used as estimated",
    "nothing": "the universe-score variance σ²(p) is 0",
    "undefined": "not defined (nan)",
    "layout": "exact effective size in the layout",
    "unbalanced": "the G-study is unbalanced",
    "harmonic": "harmonic means of the unbalanced G-study",
    "interaction": "the model has no term p:i",
    "no errors": "the covariance matrix of the components is not known",
    "bound": "no standard error, being estimated at the bound",
    "held": "no standard error, being held",
}


def kinds(study):
    text = [note.lower() for note in study.notes]
    return {kind for kind, words in KINDS.items() if any(words.lower() in note for note in text)}


def published(p=0.5, i=0.2, e=1.0, **options):
    sizes = {"p": 20, "i": 5}
    return from_components({"p": p, "i": i, "Residual": e}, sizes=sizes).dstudy(
        i=[5, 10], **options
    )


def scores(kept=None, replicates=1, flat=False):
    rng = np.random.default_rng(5)
    p, i, _ = np.indices((10, 6, replicates)).reshape(3, -1)
    y = rng.normal(size=10)[p] + 0.5 * rng.normal(size=6)[i] + rng.normal(size=p.size)
    frame = pd.DataFrame({"p": p, "i": i, "y": y})
    if flat:
        frame["y"] -= frame.groupby("i")["y"].transform("mean")
    return frame if kept is None else frame[kept(frame)]


def test_published_components():
    assert kinds(published()) == set()
    assert kinds(from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=5)) == {
        "no errors"
    }
    assert kinds(published(i=-0.02)) == {"zero"}
    assert kinds(published(i=-0.02, negative="keep")) == {"kept"}
    assert kinds(published(p=0.0)) == {"nothing"}
    assert kinds(published(p=0.0, i=0.0, e=0.0)) >= {"nothing", "undefined"}
    assert "Eρ² and Φ are not defined" in " ".join(published(p=0.0, i=0.0, e=0.0).notes)
    one = published(p=0.0, i=0.3, e=0.0)
    assert "Eρ² is not defined" in " ".join(one.notes)
    two = published(p=-0.1, i=-0.02)
    assert [note.split(" ")[0] for note in two.notes[:2]] == ["σ²(p)", "σ²(i)"]


def test_coefficients_that_are_not_between_0_and_1():
    """Replicates are averaged out, and what remains of the error is a negative component."""
    parts = {"p": 0.1, "i": 0.2, "p:i": -0.05, "Residual": 0.3}
    study = vcomp.from_components(parts).dstudy(i=2, replicate=30, negative="keep")
    table = study.table.iloc[0]
    assert table["rel_err_var"] == pytest.approx(-0.05 / 2 + 0.3 / 60)
    assert table["Erho2"] > 1.0 > table["Phi"]
    assert any(note.startswith("Eρ²: not between 0 and 1 where neg") for note in study.notes)
    followed = vcomp.from_components(parts).dstudy(i=2, replicate=30, negative="zero")
    assert followed.table["Erho2"][0] == pytest.approx(0.1 / (0.1 + 0.3 / 60))
    assert not any("not between 0 and 1" in note for note in followed.notes)


def test_fits_of_balanced_and_unbalanced_data():
    whole = vcomp.fit("y ~ (1|p) + (1|i)", scores())
    assert kinds(whole.dstudy()) == set()
    assert kinds(whole.dstudy(i=[3, 9])) == set()
    some = vcomp.fit("y ~ (1|p) + (1|i)", scores(lambda f: (f["p"] + 3 * f["i"]) % 7 > 0))
    assert kinds(some.dstudy()) == {"unbalanced"}
    assert kinds(some.dstudy(i=4)) == set()
    assert kinds(some.dstudy(i=4.5)) == {"harmonic"}
    layout = pd.DataFrame({"i": [0, 1, 2]})
    assert kinds(whole.dstudy(object="p", layout=layout)) == {"layout"}


def test_whole_sizes_that_do_not_multiply():
    """Everyone has two items and two occasions, and two scores of their four combinations."""
    rng = np.random.default_rng(3)
    p, k = (x.ravel() for x in np.indices((12, 2)))
    frame = pd.DataFrame({"p": p, "i": (p + k) % 4, "o": (p + 2 * k) % 3})
    frame["y"] = rng.normal(size=12)[p] + rng.normal(size=24)
    study = vcomp.fit("y ~ (1|p) + (1|i) + (1|o)", frame).dstudy(object="p")
    assert study.table[["i", "o"]].to_numpy().tolist() == [[2, 2]]
    assert "unbalanced" in kinds(study)


def test_replicates_without_their_interaction():
    data = scores(replicates=2)
    without = vcomp.fit("y ~ (1|p) + (1|i)", data)
    assert kinds(without.dstudy()) == {"interaction"}
    assert "in a formula as (1|p:i)" in " ".join(without.dstudy().notes)
    having = vcomp.fit("y ~ (1|p) + (1|i) + (1|p:i)", data)
    assert "interaction" not in kinds(having.dstudy())


def test_components_without_errors():
    bound = vcomp.fit("y ~ (1|p) + (1|i)", scores(flat=True))
    assert bound.vcomp["i"] == 0.0
    (note,) = [n for n in bound.dstudy().notes if "standard error" in n]
    assert note.startswith("σ²(i) has no standard error, being estimated at the bound")
    assert note.endswith("treat it as known.")
    held = vcomp.fit("y ~ (1|p) + (1|i)", scores(), hold={"i": 0.3, "Residual": 1.0})
    (note,) = [n for n in held.dstudy().notes if "standard error" in n]
    assert note.startswith("σ²(i), σ²(Residual) have no standard error, being held")
    assert note.endswith("treat them as known.")


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [([5, 10], "i"), ([5.0, 10.0], "i"), ([5, 7.5], "f"), ([5, 2.0**53], "f"), ([5, 1e300], "f")],
)
def test_sizes_in_the_table(sizes, kind):
    table = from_components({"p": 0.5, "i": 0.2, "Residual": 1.0}).dstudy(i=sizes).table
    assert table["i"].dtype.kind == kind
    assert table["i"].tolist() == sizes
