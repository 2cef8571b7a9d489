"""The stored reference values against what dense and exact algebra make of the same tables."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.reference.make_values import TOLERANCE, made, stored, worst
from tests.reference.tables import VALUES, digest, table, tables

# Dense algebra of these takes minutes: python -m tests.reference.make_values
LARGE = ("insteval",)
MADE = ("anova", "dstudy", "gt4ireval", "lme4", "vca")
NAMES = [
    path.stem
    for path in sorted(VALUES.glob("*.json"))
    if path.stem.startswith(MADE) and not any(part in path.stem for part in LARGE)
]


@pytest.mark.parametrize("name", [name for name in NAMES if stored(name)["values"]])
def test_values_are_made_again(name):
    block, distance = worst(name, made(name, profiles=False))
    assert distance < TOLERANCE, block


@pytest.mark.parametrize("name", sorted(tables()))
def test_tables_are_those_of_the_values(name):
    """Tables of packages have the numbers that the values were computed from."""
    frame = table(name)
    assert digest(frame) == tables()[name]["sha256"]
    parent = tables()[name].get("parent")
    if parent is not None:
        assert len(frame) == len(table(parent)) - len(tables()[name]["deleted_rows"])


def test_tables_are_written_with_all_digits(shared_data):
    for name in tables():
        assert digest(pd.read_csv(shared_data(f"{name}.csv"))) == tables()[name]["sha256"]


def test_a_changed_table_is_noticed():
    frame = table("Dyestuff").assign(Yield=lambda f: f["Yield"] + 1e-9)
    assert digest(frame) != tables()["Dyestuff"]["sha256"]


def test_a_changed_value_is_noticed():
    values = stored("lme4_dyestuff")["values"]
    new = {"REML": {"vc": dict(values["REML"]["vc"])}}
    assert worst("lme4_dyestuff", new)[1] == 0.0
    new["REML"]["vc"]["Batch"] *= 1.0 + 1e-6
    block, distance = worst("lme4_dyestuff", new)
    assert block == "REML.vc"
    assert distance > TOLERANCE
