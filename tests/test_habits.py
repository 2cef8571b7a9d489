"""What the workflows, the hooks and the commands of contributors run is what .ci/run runs."""

import ast
import re
import tomllib
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests.quick import BY_ROOM, is_quick

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CI = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
WORKFLOW = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
CLASSIFIER = "Programming Language :: Python :: 3."


def nox_tree():
    return ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))


def named_in_nox(name):
    """Return a constant of noxfile.py."""
    for node in nox_tree().body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(f"noxfile.py has no {name}")


def test_nox_lints_as_ci_does():
    step = CI.split('step "linters, types, layers"')[1].split("\nstep ")[0]
    ours = re.findall(r"^\.venv-test/bin/(?!pip)(.+)$", step, re.MULTILINE)
    assert list(named_in_nox("LINT")) == ours


def test_hooks_use_the_pinned_tools():
    assert "entry: ruff format\n" in HOOKS
    assert "entry: ruff check --fix\n" in HOOKS
    assert "entry: nox -s lint\n" in HOOKS
    assert "additional_dependencies: [ruff" not in HOOKS
    for extra in PROJECT["optional-dependencies"]["lint"]:
        assert re.fullmatch(r"[\w-]+==[\w.]+", extra)


def test_the_guide_names_the_commands():
    sessions = [node.name for node in nox_tree().body if isinstance(node, ast.FunctionDef)]
    assert sessions == ["test", "quick", "lint", "format", "docs", "bench", "ci"]
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `nox -s (\w+)", guide, re.MULTILINE) == sessions


def test_a_minute_of_tests_is_documented_and_covers_all_rooms(request):
    """Every folder of the package, and of its tests, has quick ones; 3,000 in a whole run."""
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"`{named_in_nox('QUICK')}`" in guide
    folders = {path.parent.name for path in (ROOT / "vcomp").glob("*/__init__.py")}
    quick = {path for path in (ROOT / "tests").rglob("test_*.py") if is_quick(path)}
    quick |= {path for path in (ROOT / "vcomp").rglob("*.py") if is_quick(path)}
    assert folders <= {path.relative_to(ROOT).parts[1] for path in quick}
    rooms = request.config.stash[BY_ROOM]
    if {Path(arg).name for arg in request.config.args} == {"tests", "vcomp"}:
        assert rooms.total() >= 3000
        assert folders <= set(rooms)


def test_the_workflow_runs_ci_and_the_oldest_and_newest_python():
    minors = [int(c.rsplit(".", 1)[1]) for c in PROJECT["classifiers"] if CLASSIFIER in c]
    assert PROJECT["requires-python"] == f">=3.{min(minors)}"
    listed = ", ".join(f'"3.{minor}"' for minor in range(min(minors), max(minors) + 1))
    assert f"python: [{listed}]" in WORKFLOW
    assert "os: [ubuntu-latest, macos-latest, windows-latest]" in WORKFLOW
    assert re.search(r"^      - run: \.ci/run$", WORKFLOW, re.MULTILINE)


def test_actions_are_pinned_by_commit_and_a_tag_is_named():
    """A tag can be moved to other code, which the job that publishes would then run."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    used = [
        line.split("uses:")[1].strip()
        for path in workflows
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line
    ]
    assert len(used) > 20
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert len({action.split("@")[0] for action in used}) == len(set(used))


def test_what_builds_a_release_is_locked_and_audited():
    lock = (ROOT / ".ci" / "build.txt").read_text(encoding="utf-8")
    wanted = (ROOT / ".ci" / "build.in").read_text(encoding="utf-8").splitlines()
    for name in (line for line in wanted if not line.startswith("#")):
        assert re.search(rf"^{name}==", lock, re.MULTILINE), name
    pinned = re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in package for package in pinned)
    release, audit = (
        (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
        for name in ("release.yml", "audit.yml")
    )
    assert "pip install --require-hashes -r .ci/build.txt" in release
    assert "pip_audit --strict --require-hashes -r .ci/build.txt" in audit


def test_a_scheduled_workflow_draws_more_examples():
    more = (ROOT / ".github" / "workflows" / "examples.yml").read_text(encoding="utf-8")
    assert "  schedule:\n" in more
    assert re.search(r"pytest .*--hypothesis-profile many$", more, re.MULTILINE)
    many, usual = (settings.get_profile(name) for name in ("many", "same"))
    assert many.max_examples >= 10 * usual.max_examples


def test_examples_are_the_same_in_every_run_unless_others_are_wanted():
    drawn = {n: settings.get_profile(n).derandomize for n in ("same", "few", "random", "many")}
    assert drawn == {"same": True, "few": True, "random": False, "many": False}


def test_no_address_is_stated_for_the_project():
    assert "urls" not in PROJECT
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert not re.search(r"^(url|repository\S*):", citation, re.MULTILINE)


def test_no_test_patches_a_constant():
    """Sizes, limits and memory are arguments."""
    target = r'setattr\(\s*(?:[^,"]+,\s*)?"(?:[\w.]+\.)?'
    constant = target + r'(_?[A-Z][A-Z0-9_]+|available_bytes|cpu_count)"'
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    found = {path.name: re.findall(constant, path.read_text(encoding="utf-8")) for path in paths}
    assert {name: names for name, names in found.items() if names} == {}


def test_examples_have_no_time_limit():
    """Compilation and slow machines exceed any."""
    for name in ("same", "few", "random", "many"):
        profile = settings.get_profile(name)
        assert profile.deadline is None
        assert HealthCheck.too_slow in profile.suppress_health_check
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"(deadline|suppress_health_check)=(?!None)", text):
            continue
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call):
                limits = [k.value for k in call.keywords if k.arg == "deadline"]
                assert all(ast.unparse(limit) == "None" for limit in limits), path
                checks = [k.value for k in call.keywords if k.arg == "suppress_health_check"]
                assert all("too_slow" in ast.unparse(check) for check in checks), path


def test_the_oldest_versions_are_those_that_are_promised():
    """Also of the optional containers: .ci/run installs them beside the newest ones."""
    extras = PROJECT["optional-dependencies"]
    promised = [*PROJECT["dependencies"], *extras["plot"], *extras["dask"], *extras["test"]]
    lowest = dict(re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", p).groups() for p in promised)
    text = (ROOT / ".ci" / "oldest.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", text, re.MULTILINE))
    assert {"duckdb", "polars", "pandas", "pyarrow", "numpy", "dask"} <= set(pinned)
    for name, version in pinned.items():
        assert f"{version}.".startswith(f"{lowest[name]}."), name


def test_a_scheduled_workflow_installs_prereleases():
    early = (ROOT / ".github" / "workflows" / "prereleases.yml").read_text(encoding="utf-8")
    assert "  schedule:\n" in early
    assert "pip install --pre -e '.[test]'" in early


def test_what_rounding_decides_is_repeated_with_other_kernels():
    for name in ("HASWELL", "ZEN", "SKYLAKEX", "NEHALEM", "NPY_DISABLE_CPU_FEATURES"):
        assert name in CI
    repeated = re.search(r"pytest -m rounding (.+)$", CI, re.MULTILINE)[1].split()
    marked = [
        path.relative_to(ROOT)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"(@|marks=)pytest\.mark\.rounding\b", path.read_text("utf-8"), re.M)
    ]
    assert marked
    for path in marked:
        assert any(path.is_relative_to(folder) for folder in repeated), path
