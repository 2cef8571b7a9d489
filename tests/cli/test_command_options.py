"""Options are made from the signature and the docstring of a function."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import click
import pytest
from click.testing import CliRunner

from vcomp.cli import data_commands, eval_commands, inputs, output, result_commands, score_commands
from vcomp.cli.command_options import Command, command, options_of

Kind = Literal["one", "two"]


def study(
    scores: Any,
    n_topics: float | Iterable[float] | None = None,
    *,
    kind: Kind = "one",
    names: Iterable[object] = (),
    prior: Mapping[str, float] | None = None,
    show_all: bool = False,
    progress: bool | None = None,
    low: float = 0.2,
    n: int = 3,
    baseline: object | None = None,
) -> None:
    """Do something.

    Parameters
    ----------
    scores : whatever
    n_topics : numbers of topics; all if None
    kind : of the study
    names, baseline : names of systems, see :func:`study`. Others are left out
    prior : by name
    show_all : whether
        all is shown
    progress : None for ``low="x"``
    low : the least
    n : draws

    Returns
    -------
    None
    """


@pytest.fixture
def made(monkeypatch, tmp_path):
    text = f'Kind = Literal["one", "two"]\n\n\n{inspect.getsource(study)}'
    (tmp_path / "made_up.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    @command("made", options_of("made_up:study", left_out="scores", n="--draws", low="Own text."))
    def made(how: dict[str, Any]) -> None:
        """Do it."""
        click.echo(repr(how))

    return made


def test_what_is_not_given_is_not_passed_on(made):
    assert CliRunner().invoke(made, []).output == "{}\n"
    given = ["--topics", "5,7.5", "--kind", "two", "--names", "a,b", "--names", "c", "--prior",
             "a=1", "--show-all", "--no-progress", "--low", "1", "--draws", "4"]  # fmt: skip
    expected = {
        "n_topics": [5, 7.5], "kind": "two", "names": ["a", "b", "c"], "prior": {"a": 1.0},
        "show_all": True, "progress": False, "low": 1.0, "n": 4,
    }  # fmt: skip
    assert CliRunner().invoke(made, given).output == f"{expected}\n"


def test_helps_are_descriptions(made):
    helps = {option.name: option.help for option in made.params}
    assert helps == {
        "n_topics": "Numbers of topics; all by default.",
        "kind": "Of the study: one, two.  [default: one]",
        "names": "Names of systems.",
        "baseline": "Names of systems.",
        "prior": "By name.",
        "show_all": "Whether all is shown.",
        "progress": "By default --low x.",
        "low": "Own text.  [default: 0.2]",
        "n": "Draws.  [default: 3]",
    }


def test_a_parameter_without_an_option_has_to_be_named(made):
    wrong = command("wrong", options_of("made_up:study"))(lambda how: None)
    with pytest.raises(TypeError, match="no option follows from scores"):
        _ = wrong.params


def test_an_option_is_given_once(made):
    done = CliRunner().invoke(made, ["--low", "1", "--low", "2"])
    assert "--low is given 2 times, and takes one value" in done.output


FILES = (data_commands, eval_commands, inputs, output, result_commands, score_commands)
COMMANDS = [c for file in FILES for c in vars(file).values() if isinstance(c, Command)]


@pytest.mark.parametrize("made", COMMANDS, ids=lambda made: made.name)
def test_no_option_is_accepted_and_ignored(made):
    """Each option reaches a parameter of the command or a field, and these are read."""
    tree = ast.parse(inspect.getsource(made.callback))
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in made_names(made)}
    assert read == made_names(made) == set(inspect.signature(made.callback).parameters)
    attributes = {
        n.attr
        for file in FILES
        for n in ast.walk(ast.parse(inspect.getsource(file)))
        if isinstance(n, ast.Attribute)
    }
    for part in made.parts:
        if isinstance(part, inputs.OptionGroup):
            fields = getattr(part.value, "__dataclass_fields__", {})
            assert set(fields) <= attributes


def made_names(made):
    return {part.name for part in made.parts}
