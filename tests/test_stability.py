"""The page on stability lists the columns that frames have, and the groups that are searched."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import vcomp
from vcomp._plugins import Group

PAGE = (Path(__file__).parents[1] / "docs/reference/stability.md").read_text(encoding="utf-8")
FRAMES = re.findall(r"^\| `((?:res|fixed)\..+?)` \| (`.+`) \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def res():
    return vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))


@pytest.fixture(scope="module")
def fixed():
    return vcomp.fit("score ~ C(sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))


@pytest.mark.parametrize(("call", "columns"), FRAMES, ids=[call for call, _ in FRAMES])
def test_frames_begin_with_the_columns_of_the_page(res, fixed, call, columns):
    wanted = re.findall("`(.+?)`", columns)
    assert list(eval(call, {"res": res, "fixed": fixed}).columns)[: len(wanted)] == wanted


COMPONENTS = re.findall(r"^\| `(score ~ .+?)`(?:, `(.+?)`)? \| (`.+`) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("formula", "options", "names"), COMPONENTS)
def test_components_have_the_names_of_the_page(formula, options, names):
    rows = [(s, t, t % 3 + (s == "a")) for s in "ab" for t in range(8) for _ in range(2)]
    data = pd.DataFrame(rows, columns=["sys", "topic", "x"])
    data["score"] = np.random.default_rng(1).normal(size=len(data))
    given = eval(f"dict({options})")
    res = vcomp.fit(formula.replace("\\|", "|"), data, **given)
    found = re.findall("`(.+?)`", names)
    assert list(res.vcomp.index) == found
    written = [f"{'cov' if ',' in name else 'var'}({name})" for name in found]
    assert list(res.params.index[-len(found) :]) == written
    assert all(f"`{name}`" in PAGE for name in ("var(sys[x])", "cov(sys[(Intercept),x])"))
    assert len(COMPONENTS) == 4


def test_public_names_are_in_the_reference():
    reference = (Path(__file__).parents[1] / "docs/reference/index.md").read_text("utf-8")
    modules = {"ctt", "datasets", "evals", "io", "ir", "presets", "simulate"}
    missing = [n for n in vcomp.__all__ if n not in modules and f"vcomp.{n}\n" not in reference]
    assert not [name for name in missing if not name.startswith("__")]


def test_fields_of_errors_and_groups_of_entry_points():
    fields = re.findall(r"^\| `error\.(\w+)`", PAGE, re.MULTILINE)
    assert fields == list(vars(vcomp.VcompError("")))
    assert all(f"`vcomp.{group}`" in PAGE for group in get_args(Group))


def test_threads_may_share_a_result(res):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: res.universe_scores("sys"), range(8)))
    assert all(frame.equals(found[0]) for frame in found)
