"""README, docs, ``--help`` and the library agree; so do the version numbers and the links."""

import re
import tomllib
from typing import get_args

import pytest

import vcomp
from tests.helpers import pages
from tests.helpers.pages import ROOT, VALUES, wrong_commands, wrong_python
from vcomp.estimators.registry import METHODS
from vcomp.inference.intervals import IntervalName
from vcomp.ir.rank.correlation import AccuracyEstimator, TauInterval

LINKED = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")


def every_page(check):
    """Return what a check finds, by page."""
    found = {page.relative_to(ROOT).as_posix(): check(pages.text_of(page)) for page in pages.PAGES}
    return {page: wrong for page, wrong in found.items() if wrong}


def test_every_command_and_its_options_exist():
    assert every_page(wrong_commands) == {}


def test_every_name_and_option_exists():
    assert every_page(wrong_python) == {}


def test_every_command_is_explained():
    guides = [page for page in pages.PAGES if page.name not in ("README.md", "changelog.md")]
    called = {
        words[0] for page in guides for words in pages.calls_of_commands(pages.text_of(page))
    }
    # This directive writes the --help of all commands into its page.
    directive = ".. click:: vcomp.cli.main:cli\n   :prog: vcomp\n   :nested: full"
    if any(directive in pages.text_of(page) for page in guides):
        called.update(pages.COMMANDS)
    assert set(pages.COMMANDS) - called == set()


def test_the_page_of_options_has_the_values_of_the_registries():
    assert VALUES["method"] == set(METHODS)
    assert VALUES["estimator"] == set(get_args(AccuracyEstimator))
    assert VALUES["interval"] == {*get_args(IntervalName), *get_args(TauInterval), "mover"}


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (wrong_commands, "`vcomp fti`"),
        (
            wrong_commands,
            '```sh\n.venv/bin/vcomp fit "y ~ (1|a)" \\\n  x.csv --intervals mls\n```',
        ),
        (wrong_commands, "`vcomp dstudy --interval exact`"),
        (wrong_commands, "| `vcomp fit` | or `--dstudies topic=50` |"),
        (wrong_commands, "    vcomp fit x.csv --datasets a"),
        (wrong_python, "`vcomp.fits`"),
        (wrong_python, "{py:meth}`res.study() <vcomp.VarianceComponentsResults.dstudy>`"),
        (wrong_python, "{py:meth}`the study <vcomp.VarianceComponentsResults.dstudies>`"),
        (wrong_python, "the `vcomp.ir.Missing`"),
        (wrong_python, "`res.required(…)`"),
        (wrong_python, "`vcomp.reliability(…, alfa=…, …)`"),
        (wrong_python, "`study.optimise(cost, …)`"),
        (wrong_python, "```python\nres.conf_int(kind=1)\n```"),
        (wrong_python, '```{note}\n`interval="exact"`\n```'),
        (wrong_python, '```python\n>>> vcomp.fit(f, d,\n...     method="lasso")\nx\n```'),
        (wrong_python, '```{code-cell} python\n:tags: [a]\nres.test("a", test="z")\n```'),
        (wrong_python, '`estimator="best"`'),
    ],
)
def test_a_planted_error_is_found(check, text):
    assert len(check(f"Text.\n\n{text}\n\nMore `code`.\n")) == 1


# Versions and links ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "stated"),
    [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("conda/recipe/recipe.yaml", r"^  version: \"(\S+)\"$"),
        ("docs/reference/changelog.md", r"^## (\S+)"),
    ],
)
def test_versions_agree(file, stated):
    found = re.search(stated, (ROOT / file).read_text(encoding="utf-8"), re.M)
    assert found[1] == vcomp.__version__


def test_nothing_installs_the_package_that_has_the_name_of_the_import():
    """On the index, "vcomp" is another project's (docs/decisions/0019)."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = "|".join(config["project"]["optional-dependencies"])
    installs = re.compile(
        r"\b(pip3?|pipx|uv|conda|mamba|pixi|poetry)\W+(\w+\W+)?(install|add|run)\b"
        r"[^\n|;&#]*[\s\"'=]vcomp(?![\w./-])" + rf"|(?<![\w.])vcomp\[({extras})\b"
    )
    name = "vcomp"
    for planted in (
        f"pip install {name}", f"pip install -U '{name}[plot]'", f'pip install "{name}>=0.1"',
        f"uv pip install {name}", f"conda install -c conda-forge {name}", f"poetry add {name}",
        f"needs the extra {name}[ir]", f"uv add {name}",
    ):  # fmt: skip
        assert installs.search(planted), planted
    for right in ("pip install variance-components", "res.vcomp['sys']", "pip install . && vcomp"):
        assert not installs.search(right), right
    tops = [
        ROOT / name for name in config["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    ]
    files = [file for top in tops for file in (top.rglob("*") if top.is_dir() else [top])]
    suffixes = {".md", ".py", ".toml", ".yml", ".yaml", ".rst", ".cff", ""}
    found = []
    for file in files:
        if file.is_file() and file.suffix in suffixes:
            text = file.read_text(encoding="utf-8")
            found += [f"{file.name}: {match[0]}" for match in installs.finditer(text)]
    assert found == []


def test_one_command_builds_the_site():
    nox = re.search(r'^SITE = "(.*)"$', (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.M)
    for file in ("CONTRIBUTING.md", ".github/workflows/docs.yml"):
        text = (ROOT / file).read_text(encoding="utf-8")
        assert nox[1] in text
        assert "pip install -e '.[docs]'" in text


def test_the_recipe_requires_what_the_package_requires():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (ROOT / "conda" / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("\n  run:\n")[2].partition("\n  run_constraints:\n")[0]
    required = re.findall(r"^    - (\S+) (>=[\d.]+)$", run, re.M)
    assert sorted(map("".join, required)) == sorted(project["dependencies"])
    assert f'python_min: "{project["requires-python"].removeprefix(">=")}"' in recipe


def anchors(page):
    """Return the anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.DOTALL)
    titles = [re.sub(r"\]\([^)]*\)", "", t) for t in re.findall(r"^#+ +(.+?) *$", text, re.M)]
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


def broken_links(text, folder):
    """Return the relative links, and the named files of docs, that do not exist."""
    wrong = []
    for link in re.findall(r"\]\(<?([^)>\s]+)", text):
        path, _, anchor = link.partition("#")
        page = folder / path
        is_there = page.exists() and (not anchor or not path or anchor in anchors(page))
        if not re.match(r"[a-z]+:", link) and not is_there:
            wrong.append(link)
    named = re.findall(r"(?<![\w/.])docs/[\w./-]+\.md", re.sub(r"\]\([^)]*\)", "", text))
    return wrong + [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("name", LINKED)
def test_links_lead_somewhere(name):
    page = ROOT / name
    assert broken_links(page.read_text(encoding="utf-8"), page.parent) == []


@pytest.mark.parametrize(
    "text", ["[a](docs/none.md)", "[a](SECURITY.md#none)", "see docs/reliability.md"]
)
def test_a_broken_link_is_found(text):
    assert len(broken_links(f"{text}, [b](SECURITY.md#what-is-a-pickle), [c](LICENSE)", ROOT)) == 1
