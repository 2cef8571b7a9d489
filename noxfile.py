"""The commands of a contributor: test, quick, lint, format, docs, bench, ci (CONTRIBUTING.md)."""

from __future__ import annotations

import nox

LINT = ("ruff format --check .", "ruff check .", "mypy", "lint-imports")
"""The same commands, in the same order, as in .ci/run; a test compares them."""

SITE = "python -m sphinx -W --keep-going -b html docs build/site"
"""The same command as in CONTRIBUTING.md and in the workflow docs; a test compares them."""

QUICK = "python -m pytest -m quick -n auto --assert=plain"
"""The same command as in CONTRIBUTING.md; a test compares them."""

nox.options.sessions = ["lint", "test"]
nox.options.reuse_venv = "yes"


@nox.session
def test(session: nox.Session) -> None:
    """Run the tests, or some: nox -s test -- tests/formula."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "pytest", *(session.posargs or ["-n", "auto"]))


@nox.session
def quick(session: nox.Session) -> None:
    """Run some tests of each file, in a minute; nothing is compiled."""
    session.install("-e", ".[test]")
    session.run(*QUICK.split(), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style, types and layers; nothing is changed."""
    session.install("-e", ".[lint,test]")
    for command in LINT:
        session.run(*command.split())


@nox.session
def format(session: nox.Session) -> None:  # noqa: A001 -- the name of the command
    """Format the code, and fix what ruff can fix."""
    session.install("-e", ".[lint]")
    session.run("ruff", "format", ".")
    session.run("ruff", "check", "--fix", ".")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into build/site; every warning is an error."""
    session.install("-e", ".[docs]")
    session.run(*SITE.split(), *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Time the stages of a fit: nox -s bench -- --quick shows that the benchmarks run."""
    session.install("-e", ".[test]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session(venv_backend="none")
def ci(session: nox.Session) -> None:
    """Run everything that has to hold, as the CI machine does; Linux only."""
    session.run("bash", ".ci/run")
