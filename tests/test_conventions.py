"""Every public signature says a thing in the one way that docs/reference/conventions.md gives."""

import ast
import importlib
import inspect
import re
import sys
from collections import defaultdict
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

import vcomp
from vcomp.estimators.registry import METHODS, get_estimator

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "conventions.md"

MODULES = (
    "vcomp", "vcomp.ctt", "vcomp.datasets", "vcomp.evals", "vcomp.formula", "vcomp.gtheory",
    "vcomp.io", "vcomp.ir", "vcomp.presets", "vcomp.simulate",
)  # fmt: skip

# What users have of rooms whose doors serve the package too.
FOR_USERS = {
    "vcomp.formula": "BrennanDesign Effect design_effects design_formula expected_mean_squares "
    "parse_design",
    "vcomp.gtheory": "Cost Counts DStudy DStudyPlan PublishedComponents Requirement dstudy "
    "from_components make_plans",
}

# Records that public attributes hold, and what only the package itself calls.
INTERNAL = {
    "Batches", "BrennanDesign", "Chunk", "CompleteRows", "CrossProducts", "Design",
    "FromComponents", "HasDStudies", "MeanOfScores", "OriginalCollection", "Quantities",
    "Rows", "Smooth", "Structure", "TwoWayMeanSquares",
}  # fmt: skip


# The page ----------------------------------------------------------------------------------------


def rows_of(heading):
    """Return the cells of the tables under a heading of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [c for c in cells if not set(c[0]) <= set("-: ") and c[0] not in ("option", "verb")]


def options(*, text=True):
    """Return the allowed values of every option, as the page lists them.

    With `text` False only of options that cannot be other text as well.
    """
    found = {}
    for names, _meaning, values in rows_of("Options"):
        allowed = set(re.findall(r'`"([^"`]*)"`', values))
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found, f"{name} has two meanings in {PAGE.name}"
            found[name] = allowed if text or not re.search(r"\btext\b", values) else set()
    return found


# The signatures ----------------------------------------------------------------------------------


@cache
def tree_of(module):
    """Return the syntax tree of a module."""
    return ast.parse(inspect.getsource(module))


@cache
def imported(module, name):
    """Return what a name stands for in a module, also if it is imported for type checkers only."""
    if hasattr(module, name):
        return getattr(module, name), module
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("vcomp"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return imported(importlib.import_module(node.module), alias.name)
    return None, module


@cache
def literals(annotation, module):
    """Return the texts in the Literals of an annotation, aliases followed."""
    tree = ast.parse(annotation, mode="eval") if isinstance(annotation, str) else None
    if tree is None:
        inside = getattr(annotation, "__args__", ())
        own = {a for a in inside if isinstance(a, str)}
        forward = getattr(annotation, "__forward_arg__", None)
        own |= literals(forward, module) if forward else set()
        return own.union(*(literals(a, module) for a in inside if not isinstance(a, str)))
    found = set()

    def visit(node):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
            constants = [n.value for n in ast.walk(node.slice) if isinstance(n, ast.Constant)]
            found.update(c for c in constants if isinstance(c, str))
        elif isinstance(node, ast.Name):
            value, home = imported(module, node.id)
            if value is not None and not inspect.isclass(value):
                found.update(literals(value, home))
        else:
            for child in ast.iter_child_nodes(node):
                visit(child)

    visit(tree.body)
    return found


def returned_classes(function):
    """Return the classes of the package that a return annotation names."""
    annotation = inspect.signature(function).return_annotation
    module = sys.modules[inspect.unwrap(function).__module__]
    words = re.findall(r"\b[A-Z]\w+", annotation) if isinstance(annotation, str) else []
    values = [imported(module, word)[0] for word in words]
    return [v for v in values if inspect.isclass(v) and v.__module__.startswith("vcomp")]


def public_callables():
    """Return all functions, constructors and methods that a user calls, by their names."""
    found, seen = {}, set()

    def function(name, value):
        found[name] = value
        for returned in returned_classes(value):
            of_class(returned)

    def of_class(cls):
        if cls in seen or cls.__name__ in INTERNAL or issubclass(cls, BaseException):
            return
        seen.add(cls)
        if re.search(r"^ *Parameters\n", inspect.getdoc(cls) or "", re.M):
            found[cls.__name__] = cls
        for name in dir(cls):
            value = inspect.getattr_static(cls, name)
            if name.startswith("_") or isinstance(value, property):
                continue
            method = getattr(cls, name)
            own = str(getattr(method, "__module__", "")).startswith("vcomp")
            if own and inspect.isroutine(method):
                function(f"{cls.__name__}.{name}", method)

    for name in MODULES:
        module = importlib.import_module(name)
        for word in FOR_USERS[name].split() if name in FOR_USERS else module.__all__:
            value = getattr(module, word)
            if inspect.isclass(value):
                of_class(value)
            elif inspect.isroutine(value):
                function(f"{name}.{word}", value)
    return found


CALLABLES = public_callables()


def parameters(value):
    """Return the parameters that a caller gives, without ``self``."""
    found = inspect.signature(value).parameters.values()
    return [p for p in found if p.name not in ("self", "cls")]


def module_of(value, parameter):
    """Return the module in which a signature is written."""
    return sys.modules[inspect.unwrap(value).__module__]


def documented(value):
    """Return the names that a docstring explains: in its list of parameters, or in backticks."""
    text = inspect.getdoc(value) or ""
    lists = re.findall(r"^ *([\w*, ]+?) :(?:\s|$)", text, re.M)
    named = {name.strip(" *") for line in lists for name in line.split(",")}
    return named | set(re.findall(r"`+\*{0,2}(\w+)=?`+", text))


# Tests -------------------------------------------------------------------------------------------


def of_estimators():
    """Return the names of the options that a fit passes on to its estimator."""
    return {f.name for method in METHODS for f in fields(get_estimator(method))}


def test_every_parameter_is_an_option_of_the_page():
    known = options()
    assert of_estimators() <= set(known)
    strange = {
        f"{name}({p.name}=)" for name, v in CALLABLES.items() for p in parameters(v)
        if p.name not in known
    }  # fmt: skip
    assert not strange


def test_every_allowed_value_is_one_of_the_page():
    known, strange = options(), {}
    for name, value in CALLABLES.items():
        for p in parameters(value):
            given = literals(p.annotation, module_of(value, p))
            more = given - known.get(p.name, set())
            if more:
                strange[f"{name}({p.name}=)"] = sorted(more)
    assert not strange


def test_options_with_listed_values_have_them_in_their_type():
    known = {name: values for name, values in options(text=False).items() if values}
    vague = {
        f"{name}({p.name}=)"
        for name, v in CALLABLES.items()
        for p in parameters(v)
        if p.name in known and isinstance(p.default, str) and "str" in p.annotation
        and not literals(p.annotation, module_of(v, p))
    }  # fmt: skip
    assert not vague


def test_the_page_lists_nothing_that_does_not_exist():
    names, values = set(), defaultdict(set)
    for value in CALLABLES.values():
        for p in parameters(value):
            names.add(p.name)
            values[p.name] |= literals(p.annotation, module_of(value, p))
    assert set(options()) <= names | of_estimators()
    known = options(text=False)
    assert {k: v - values[k] for k, v in known.items() if v - values[k]} == {}


def test_defaults_are_allowed_values():
    known = {name: values for name, values in options(text=False).items() if values}
    wrong = {
        f"{name}({p.name}={p.default!r})" for name, v in CALLABLES.items() for p in parameters(v)
        if p.name in known and isinstance(p.default, str) and p.default not in known[p.name]
    }  # fmt: skip
    assert not wrong


def test_every_parameter_is_documented():
    silent = {
        f"{name}({p.name}=)" for name, v in CALLABLES.items() for p in parameters(v)
        if p.name not in documented(v)
    }  # fmt: skip
    assert not silent


@pytest.mark.parametrize(
    ("option", "default"),
    [("alpha", 0.05), ("rng", None), ("workers", 1), ("time_limit", None), ("eval_env", 0)],
)
def test_shared_options_have_one_default(option, default):
    given = {
        name: p.default for name, v in CALLABLES.items() for p in parameters(v)
        if p.name == option and p.default is not p.empty
    }  # fmt: skip
    # A prediction, a profile or a table of values has an alpha already, which None leaves.
    assert given
    assert {v for v in given.values() if option != "alpha" or v is not None} == {default}


@pytest.mark.parametrize(
    "cls", [vcomp.VarianceComponentsResults, type(vcomp.from_components({"p": 1.0}))]
)
def test_quantity_and_dstudy_share_their_signature(cls):
    of_study, of_quantity = parameters(cls.dstudy), parameters(cls.quantity)
    shared = [p.name for p in of_study]
    assert [p.name for p in of_quantity if p.name in shared] == shared
    same = {p.name: (p.kind, p.default) for p in of_quantity}
    for p in of_study:
        if p.name != "negative":  # which depends on the quantity
            assert same[p.name] == (p.kind, p.default), p.name


def test_resampling_verbs_share_their_signature():
    results = vcomp.VarianceComponentsResults
    order = [
        "self",
        "facet",
        "n",
        "rng",
        "workers",
        "time_limit",
        "path",
        "progress",
        "adjust",
        "groups",
    ]
    whole = {p.name: (p.kind, p.default) for p in parameters(results.bootstrap)}
    for verb in (results.bootstrap, results.resample, results.jackknife):
        names = list(inspect.signature(verb).parameters)
        assert names == [name for name in order if name in names]
        for p in parameters(verb):
            assert whole.get(p.name, (p.kind, p.default)) == (p.kind, p.default)
        assert issubclass(returned_classes(verb)[0], returned_classes(results.bootstrap)[0])


def test_every_verb_of_the_page_is_there():
    for verb, _meaning, places in rows_of("Verbs"):
        (name,) = re.findall(r"`(\w+)`", verb)
        for place in re.findall(r"`([\w.]+)`", places):
            owner = vcomp
            for part in place.removeprefix("vcomp.").split(".") if place != "vcomp" else []:
                owner = getattr(owner, part)
            assert callable(getattr(owner, name)), f"{place}.{name}"


@pytest.mark.parametrize("name", ["estimate", "gauge_rr", "precision"])
def test_old_verbs_are_gone(name):
    assert not hasattr(vcomp.VarianceComponentsResults, name)
    assert not hasattr(type(vcomp.from_components({"p": 1.0})), name)


@pytest.mark.parametrize(
    ("call", "options"),
    [
        ("conf_int", {"method": "wald"}),
        ("gstudy", {"method": "wald"}),
        ("tidy", {"method": "wald"}),
        ("cov_vcomp", {"kind": "expected"}),
        ("bootstrap", {"replicates": 10}),
        ("augment", {"to": "rows.parquet"}),
    ],
)
def test_an_unknown_option_is_pythons_error(call, options):
    data = vcomp.datasets.load("bodoff2007_alpha")
    res = vcomp.fit("score ~ (1|sys) + (1|topic)", data, method="anova")
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{next(iter(options))}'"):
        getattr(res, call)(**options)


def test_an_unknown_option_that_is_passed_on_names_those_that_are_allowed():
    data = vcomp.datasets.load("bodoff2007_alpha")
    formula = "score ~ (1|sys) + (1|topic)"
    with pytest.raises(vcomp.EstimationError, match="takes prior, iterated, not 'priors'"):
        vcomp.fit(formula, data, method="minque", priors=1.0)
    res = vcomp.fit(formula, data, method="anova")
    with pytest.raises(vcomp.PlanError, match=r"unknown facet 'method'; .* sys, topic"):
        res.dstudy(method="mls")
