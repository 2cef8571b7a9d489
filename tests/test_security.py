"""What SECURITY.md says: formulas are code, and nothing else is evaluated."""

import ast
import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vcomp

S, T = (axis.ravel() for axis in np.indices((6, 8)))
rng = np.random.default_rng(11)
FRAME = pd.DataFrame(
    {
        "score": rng.normal(size=6)[S] + rng.normal(size=8)[T] + rng.normal(size=48),
        "sys": S,
        "topic": T,
        "x": rng.normal(size=48),
    }
)
FORMULA = "score ~ x + (1|sys) + (1|topic)"


@pytest.fixture
def mark(tmp_path):
    """Return a path that exists once some code was run, and an expression that would make it."""
    path = tmp_path / "evaluated"
    return path, f"__import__('pathlib').Path({str(path)!r}).touch()"


def poisoned(code):
    """Return a formula whose response and fixed part are that code."""
    return f"I({code}) ~ I({code}) + (1|sys) + (1|topic)"


class Touch:
    """What makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


# Formulas are code -------------------------------------------------------------------------------


def test_formulas_are_evaluated_as_python_code(mark):
    path, code = mark
    data = FRAME.copy()
    vcomp.fit(f"I(score + ({code} or 0)) ~ (1|sys) + (1|topic)", data)
    assert path.exists()


def test_random_terms_are_names_of_columns_only(mark):
    path, code = mark
    with pytest.raises(vcomp.FormulaError, match="groups by columns"):
        vcomp.fit(f"score ~ (1|I({code})) + (1|topic)", FRAME)
    assert not path.exists()


# Files that are loaded ---------------------------------------------------------------------------


def with_formula(stored, formula, target):
    """Copy stored statistics, with another formula in their header."""
    with zipfile.ZipFile(stored) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith(".json"):
                content = json.dumps({**json.loads(content), "formula": formula}).encode()
            new.writestr(name, content)
    return target


def test_a_formula_in_stored_statistics_is_not_evaluated(mark, tmp_path):
    path, code = mark
    vcomp.accumulate(FORMULA, FRAME).save(tmp_path / "good.vcomp")
    bad = with_formula(tmp_path / "good.vcomp", poisoned(code), tmp_path / "bad.vcomp")
    loaded = vcomp.AccumulatedStatistics.load(bad)
    assert code in loaded.formula
    res = (loaded + loaded).fit()
    loaded.fit("henderson3").summary()
    str(res.design)
    res.dstudy(topic=20).summary()
    with pytest.raises(vcomp.VcompError):
        res.predict(FRAME)
    with pytest.raises(vcomp.VcompError):
        res.augment(FRAME)
    loaded.save(tmp_path / "again.vcomp")
    assert not path.exists()


def test_a_formula_in_a_stored_result_is_not_evaluated(mark):
    path, code = mark
    stored = json.loads(vcomp.fit(FORMULA, FRAME).to_json())
    text = json.dumps(stored).replace(FORMULA, poisoned(code).replace('"', '\\"'))
    assert code in text
    res = vcomp.VarianceComponentsResults.from_json(text)
    assert code in res.formula
    res.summary()
    str(res.design)
    res.dstudy(topic=20).summary()
    res.conf_int()
    with pytest.raises(vcomp.VcompError):
        res.predict(FRAME)
    res.to_json()
    assert not path.exists()


def pickled_array(path):
    """Return an array of objects in numpy's format, which makes a file when it is unpickled."""
    stored = io.BytesIO()
    np.save(stored, np.array([Touch(path)], dtype=object), allow_pickle=True)
    return stored.getvalue()


def with_pickle(stored, target, name, path):
    """Copy an archive, with one array replaced by a pickle."""
    with zipfile.ZipFile(stored) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, pickled_array(path) if entry == name else old.read(entry))
    return target


def test_a_pickle_in_stored_statistics_is_refused(mark, tmp_path):
    path, _ = mark
    vcomp.accumulate(FORMULA, FRAME).save(tmp_path / "good.vcomp")
    bad = with_pickle(tmp_path / "good.vcomp", tmp_path / "bad.vcomp", "counts.npy", path)
    with pytest.raises(vcomp.DataError, match="does not hold statistics"):
        vcomp.AccumulatedStatistics.load(bad)
    assert not path.exists()


def test_a_pickle_among_stored_replicates_is_refused(mark, tmp_path):
    path, _ = mark
    made = vcomp.fit(FORMULA, FRAME).bootstrap(20, rng=1)
    made.save(tmp_path / "good.npz")
    with zipfile.ZipFile(tmp_path / "good.npz") as archive:
        names = [name for name in archive.namelist() if name != "about.npy"]
    bad = with_pickle(tmp_path / "good.npz", tmp_path / "bad.npz", names[0], path)
    with pytest.raises(vcomp.DataError, match="does not hold replicates"):
        type(made).load(bad)
    assert not path.exists()


def test_the_pickle_of_these_tests_would_run(mark):
    path, _ = mark
    np.load(io.BytesIO(pickled_array(path)), allow_pickle=True)
    assert path.exists()


# Texts that look like code -----------------------------------------------------------------------

RESULT = vcomp.fit(FORMULA, FRAME)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').getcwd()",
        "exec('1')",
        "sqrt(open('file'))",
        "sqrt(x=sys)",
        "sys.real",
        "sys[0]",
        "(lambda: 1)()",
        "[sys for i in (1,)]",
        "sys if sys else topic",
        "(v := 1) * sys",
        "f'{sys}'",
        "'sys' * 2",
        "sys ** 2",
        "sys @ topic",
        "sys and topic",
        "sys < topic",
    ],
)
def test_a_quantity_is_arithmetic_of_components_only(text):
    with pytest.raises(vcomp.EstimationError):
        RESULT.quantity(text)


def test_code_in_a_quantity_is_not_evaluated(mark):
    path, code = mark
    with pytest.raises(vcomp.EstimationError):
        RESULT.quantity(code)
    with pytest.raises(vcomp.EstimationError):
        RESULT.quantity(f"sqrt({code})")
    assert not path.exists()


def test_code_in_a_cost_is_not_evaluated(mark):
    path, code = mark
    study = RESULT.dstudy(topic=20)
    with pytest.raises(vcomp.PlanError):
        study.optimize(f"5*topic + {code}", budget=100)
    assert not path.exists()


def test_code_in_a_design_is_not_evaluated(mark):
    path, code = mark
    with pytest.raises(vcomp.VcompError):
        RESULT.dstudy(f"sys x ({code}:topic)", topic=20)
    with pytest.raises(vcomp.VcompError):
        vcomp.gstudy(f"sys x ({code}:topic)", FRAME, "score")
    assert not path.exists()


def test_code_in_a_hypothesis_is_not_evaluated(mark):
    path, code = mark
    with pytest.raises(vcomp.VcompError):
        RESULT.t_test(f"x = {code}")
    with pytest.raises(vcomp.VcompError):
        RESULT.f_test(f"{code} = 0")
    assert not path.exists()


def test_code_in_the_name_of_a_measure_is_not_evaluated(mark):
    pytest.importorskip("ir_measures", reason="ir_measures is not installed (extra ir)")
    path, code = mark
    qrels = {"1": {"d1": 1, "d2": 0}, "2": {"d1": 0, "d3": 2}}
    runs = {name: {"1": {"d1": 2.0}, "2": {"d3": 1.0}} for name in ("a", "b")}
    with pytest.raises(vcomp.VcompError):
        vcomp.ir.score_runs(runs, qrels, code)
    with pytest.raises(vcomp.VcompError):
        vcomp.ir.score_runs(runs, qrels, f"P(cutoff={code})")
    assert not path.exists()


def test_values_of_columns_are_data(mark):
    path, code = mark
    names = FRAME["sys"].map({0: code}).fillna("other " + FRAME["sys"].astype(str))
    res = vcomp.fit("score ~ C(sys) + (1|topic)", FRAME.assign(sys=names))
    res.summary()
    assert not path.exists()


# Names in a notebook -----------------------------------------------------------------------------


def test_names_are_escaped_in_html():
    name = "<script>alert(1)</script>"
    data = FRAME.rename(columns={"sys": name})
    res = vcomp.fit(f"score ~ x + (1|Q({name!r})) + (1|topic)", data)
    for shown in (res, res.design, res.dstudy(topic=20)):
        html = shown._repr_html_()
        assert "<script" not in html
        assert "&lt;script&gt;" in html


# The code itself ---------------------------------------------------------------------------------

PACKAGE = Path(vcomp.__file__).parent
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "read_pickle"}
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "subprocess", "code"}


def calls(tree):
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield name, node
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
                pass  # re.compile
            case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="system" | "popen")):
                yield "exec", node
            case ast.Call(func=ast.Attribute(attr=name)):
                yield name, node


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


MENTIONED = {"allow_pickle", "load", "read_array", "system", "popen"}


def test_only_the_formula_package_evaluates_and_nothing_unpickles():
    words = "|".join(FORBIDDEN_CALLS | FORBIDDEN_MODULES | MENTIONED)
    found = set()
    for file in PACKAGE.rglob("*.py"):
        place, text = file.relative_to(PACKAGE), file.read_text(encoding="utf-8")
        if not re.search(rf"\b({words})\b", text):
            continue
        tree = ast.parse(text)
        assert not FORBIDDEN_MODULES & set(imported(tree)), place
        for name, call in calls(tree):
            if name in FORBIDDEN_CALLS:
                found.add((place.parts[0], name))
            said = [ast.literal_eval(k.value) for k in call.keywords if k.arg == "allow_pickle"]
            assert said in ([], [False]), place
            reads = name in ("load", "read_array")
            if reads and ast.unparse(call.func) in ("np.load", "np.lib.format.read_array"):
                assert said == [False], place
    # patsy's `EvalEnvironment.eval`, and its evaluator of the terms of a formula.
    assert found == {("formula", "eval")}


# Logs of model evaluations -----------------------------------------------------------------------


def test_logs_of_evaluations_are_data_and_names_of_members_are_not_paths(mark, tmp_path):
    path, code = mark
    spec = {"model": code, "task": code, "task_id": code, "task_args": {"prompt": code}}
    sample = {"id": code, "epoch": 1, "scores": {code: {"value": 1}}, "metadata": {"m": code}}
    log = tmp_path / "logs" / "log.eval"
    log.parent.mkdir()
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("header.json", json.dumps({"eval": spec, "status": "success"}))
        for name in ("samples/../../../outside.json", "samples//etc/passwd.json"):
            archive.writestr(name, json.dumps(sample | {"id": name}))
    logs = vcomp.evals.read(log.parent, metadata=["m"])
    assert len(logs.table) == 2
    str(logs)
    assert not path.exists()
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["log.eval"]
