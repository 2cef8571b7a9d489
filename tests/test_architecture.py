"""What the package promises as a package: cheap import, types, layers, names."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module, resources
from pathlib import Path

import pytest

import vcomp

ROOT = Path(vcomp.__file__).parent
HEAVY = ("pandas", "scipy", "statsmodels", "numba", "patsy", "pyarrow", "click", "matplotlib")


def modules_after(statement):
    code = f"import sys; {statement}\nprint(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    ["import vcomp", "import vcomp; vcomp.VcompError; vcomp.datasets; vcomp.ir; vcomp.ctt"],
)
def test_import_is_cheap(statement):
    loaded = modules_after(statement)
    assert not loaded & set(HEAVY)


def test_a_fit_imports_no_more_than_it_needs():
    loaded = modules_after(
        "import vcomp; vcomp.fit('y ~ (1|a)', {'a': [1, 1, 2, 2, 3, 3], 'y': [1., 2, 4, 5, 9, 7]})"
    )
    assert not loaded & {"statsmodels", "scipy.stats", "matplotlib", "click"}


@pytest.mark.parametrize("given", ["--version", "--help", "fit --help", "simulate --help"])
def test_the_command_line_imports_what_a_command_needs(given):
    loaded = modules_after(
        "import contextlib, io; from vcomp.cli import main\n"
        f"sys.argv = ['vcomp', *{given.split()}]\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main()"
    )
    assert "click" in loaded
    assert not loaded & ({"numpy", "vcomp.api", *HEAVY} - {"click"})


def test_every_public_name_is_there():
    for name in vcomp.__all__:
        assert getattr(vcomp, name).__doc__, name
    assert set(vcomp.__all__) <= set(dir(vcomp))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = vcomp.nonsense


def test_every_name_of_a_front_door_is_there():
    for stub in ROOT.rglob("__init__.pyi"):
        door = import_module(".".join(["vcomp", *stub.parent.relative_to(ROOT).parts]))
        for name in door.__all__:
            assert hasattr(door, name), f"{door.__name__}.{name}"


def test_no_module_has_the_name_of_what_its_package_offers():
    """Importing such a module would put it in the place of the function."""
    shadowed = []
    for stub in Path(vcomp.__file__).parent.rglob("__init__.pyi"):
        beside = {path.stem for path in stub.parent.iterdir()}
        offered = re.findall(r"^from \.\S+ import (\w+)", stub.read_text("utf-8"), re.MULTILINE)
        shadowed += [f"{stub.parent.name}.{name}" for name in offered if name in beside]
    assert shadowed == []


def test_a_name_of_a_class_occurs_once():
    texts = (path.read_text("utf-8") for path in ROOT.rglob("*.py"))
    names = [name for text in texts for name in re.findall(r"^class (\w+)", text, re.MULTILINE)]
    assert len(names) > 100
    assert {name for name in names if names.count(name) > 1} == set()


def test_errors_are_value_errors():
    for name in ("FormulaError", "DataError", "DesignError", "EstimationError", "PlanError"):
        assert issubclass(getattr(vcomp, name), vcomp.VcompError)
    assert issubclass(vcomp.VcompError, ValueError)
    assert issubclass(vcomp.VcompWarning, UserWarning)


def test_the_package_is_typed():
    assert resources.files("vcomp").joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    "folder", ["cli", "gtheory", "inference/hypotheses", "ir", "model", "plots", "studies"]
)
def test_only_display_formats_numbers(folder):
    """A format specification for numbers elsewhere would let two pages show one number twice."""
    specification = re.compile(r"\{[^{}]*:[^{}]*\.\d+[efg%]\}")
    for path in (ROOT / folder).rglob("*.py"):
        assert not specification.findall(path.read_text(encoding="utf-8")), path.name


def test_version_is_one():
    from importlib.metadata import version

    assert version("variance-components") == vcomp.__version__


def test_engines_are_used_by_their_contract():
    """Outside their folder no class of an engine is imported, and no name of one is compared."""
    folder, found = ROOT / "estimators/likelihood", []
    engines, names = set(), set()
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for made in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for line in (node for node in made.body if isinstance(node, ast.AnnAssign)):
                if made.name.endswith("Likelihood") and ast.unparse(line.target) == "name":
                    engines.add(made.name)
                    names.add(line.value.value)
    assert names == {"strata", "levels", "blocked", "iterative"}
    told = re.compile("|".join([*engines, r"\.name\b"]))
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if folder in path.parents or not told.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and "estimators" in (node.module or ""):
                found += [(path, each.name) for each in node.names if each.name in engines]
            left = node.left if isinstance(node, ast.Compare) else None
            if isinstance(left, ast.Attribute) and left.attr == "name":
                values = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                found += [(path, name) for name in values & names]
    assert found == []


EVALUATORS = {
    "FormsLikelihood": "forms of V⁻¹, which kinds of covariance have",
    "Point": "elimination",
    "IterativeLikelihood": "probes",
    "StackedLikelihood": "forms of many data sets at once",
    "MeanProductsLikelihood": "mean products of several responses",
    "EquationsLikelihood": "several responses by elimination in stages",
}

OF_EVALUATORS = {
    "MatricesPoint": "the elimination for principal effects",
    "BlockedLikelihood": "values of the elimination",
    "MatricesLikelihood": "values of the elimination",
    "_WithHeld": "values of the elimination for the matrices that are not held",
    "ConeSearch": "values of any objective",
    "SeriesLikelihood": "a series in values of the probes",
}


def test_value_and_score_are_computed_in_known_places():
    """Kinds of covariance and block are added to one of them (docs/decisions/0007-engines.md)."""
    found = {
        node.name
        for room in ("estimators", "multivariate")
        for path in sorted((ROOT / room).rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        and not any("Protocol" in ast.unparse(base) for base in node.bases)
        and any(
            isinstance(part, ast.FunctionDef)
            and part.name in {"score", "gradient", "gradients", "derivatives"}
            and "columns" not in [a.arg for a in part.args.args]
            for part in node.body
        )
    }
    assert found == {*EVALUATORS, *OF_EVALUATORS}
