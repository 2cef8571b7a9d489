"""Commands, and options that are made from the signatures and docstrings of functions.

A parameter of a function becomes an option: its type follows from the annotation, its default and
help from the signature and the docstring. What differs from that is declared beside the command.
An option that is not given is not passed on, so that the default is the function's. Signatures are
read from the source text: an import of the functions takes a second.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from vcomp import data
from vcomp.cli import output
from vcomp.cli.inputs import OptionGroup, Part, by_name, names_given, numbers_argument, option
from vcomp.exceptions import PlanError, VcompError

_SPELLINGS = {"n_topics": "topics", "n_probes": "probes", "rng": "seed"}
"""Options with another name than the parameter."""

_TEXT = r"\b(str|object)\b|Interval|^(?!Any\b)[A-Z]\w+( \| None)?$"
"""Annotations of texts, which are names mostly, as are aliases that only type checkers import."""

_INSTEAD = {"--statistics": "add files with `vcomp merge`"}
"""Advice for an option that was repeated."""

_WRITTEN = frozenset({"--augment", "--csv", "--json", "--out", "--plot", "--true-means"})
"""Options that name a file to write."""

WORKERS = option(
    "--workers", "Number of threads.", type=click.IntRange(min=1), default=1, metavar="N"
)


# Options of functions ----------------------------------------------------------------------------


def options_of(
    *functions: str,
    name: str = "how",
    only: str = "",
    left_out: str = "",
    prefix: str = "",
    **changes: str | click.Option,
) -> OptionGroup:
    """Return the options of functions, as one argument that has those that were given.

    Parameters
    ----------
    *functions : their places, ``"vcomp.ir:accuracy"``; of a parameter that several of them have,
        the first one counts
    name : of the argument
    only : parameters that have an option, separated by spaces; all if empty
    left_out : parameters without an option
    prefix : of the help
    **changes : the spelling of an option, ``n="--draws"``; its help; or the option
    """

    def made() -> Iterator[click.Parameter]:
        done = set(left_out.split())
        for place in functions:
            module, definition = _function(place)
            texts = _descriptions(module, definition)
            for parameter in _parameters(module, definition):
                is_wanted = parameter.name in (only.split() or [parameter.name])
                if not is_wanted or parameter.name in done:
                    continue
                done.add(parameter.name)
                change = changes.get(parameter.name, "")
                text = _as_help(texts.get(parameter.name, ""), is_sentence=not prefix)
                yield (
                    change
                    if isinstance(change, click.Option)
                    else _option(parameter, prefix + text, change)
                )

    return OptionGroup(name, lambda: tuple(made()), given)


def given(**values: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in values.items() if value is not None and value != ()}


def _option(parameter: _SourceParameter, text: str, change: str) -> click.Option:
    """Return the option of a parameter of a function.

    Parameters
    ----------
    parameter : where the option comes from
    text : its help
    change : another spelling, another help, or empty

    Raises
    ------
    TypeError
        If no option follows from the annotation.
    """
    name, default, annotation = parameter.name, parameter.default, parameter.annotation
    if name == "workers":
        return WORKERS
    spelling = "--" + _SPELLINGS.get(name, name).replace("_", "-")
    if change.startswith("--"):
        spelling = change
    elif change:
        text = change
    how: dict[str, Any] = {"required": default is _REQUIRED}
    known = re.search(r"Literal\[([^]]*)\]", annotation)
    choices = [] if known is None else re.findall(r"'([^']*)'", known[1])
    if "Mapping[str, float]" in annotation:
        how |= {"multiple": True, "metavar": "NAME=X", "callback": _by_name}
    elif "Mapping[str, Any]" in annotation:
        how |= {"multiple": True, "metavar": "NAME=LEVEL", "callback": _levels_by_name}
    elif "Mapping[str, str]" in annotation:
        how |= {"multiple": True, "metavar": "NAME=NAME", "callback": names_by_name}
    elif re.search(r"(Iterable|Sequence)\[float", annotation):
        how |= {"metavar": "N,N…", "callback": _numbers}
    elif re.search(r"(Iterable|Sequence)\[(str|object)", annotation):
        how |= {"multiple": True, "metavar": "NAME,NAME…", "callback": names_given}
    elif choices or re.search(_TEXT, annotation):
        how["metavar"] = "NAME"
    elif "bool" in annotation:
        negation = f"/--no-{spelling.removeprefix('--')}" if default is None else ""
        spelling, how["is_flag"] = spelling + negation, True
    elif re.search(r"\bint\b|Literal", annotation):
        how |= {"type": int, "metavar": "N"}
    elif re.search(r"\bfloat\b", annotation):
        how |= {"type": float, "metavar": "X"}
    else:
        raise TypeError(
            f"no option follows from {name}: {annotation}: declare one or leave it out"
        )
    if choices and not re.search(rf"(?<!\w)({'|'.join(choices)})(?!\w)", text):
        text = f"{text.removesuffix('.')}: {', '.join(choices)}."
    if default not in (_REQUIRED, None, False, ()) and "default" not in text:
        text += f"  [default: {default}]"
    return click.Option([spelling, name], help=text, default=None, **how)


def _by_name(_: Any, __: Any, texts: Sequence[str]) -> dict[str, float] | None:
    return by_name(" ".join(texts)) if texts else None


def _levels_by_name(_: Any, __: Any, texts: Sequence[str]) -> dict[str, list[str]] | None:
    found: dict[str, list[str]] = {}
    last = ""
    for text in names_given(_, __, texts) or ():
        name, equals, level = text.partition("=")
        # In model=a,b another level follows.
        name, level = (name, level) if equals or not last else (last, text)
        if not (name and level):
            raise PlanError(f"{text!r} has no level; write NAME=LEVEL such as filter=none")
        found.setdefault(name, []).append(level)
        last = name
    return found or None


def names_by_name(_: Any, __: Any, texts: Sequence[str]) -> dict[str, str] | None:
    """Return the names in ``NAME=NAME`` of an option, None if it is not given.

    Raises
    ------
    PlanError
        If one of both is not there.
    """
    pairs = [text.partition("=") for text in names_given(_, __, texts) or ()]
    if not all(name and theirs for name, _, theirs in pairs):
        raise PlanError(f"{' '.join(texts)!r} has no names; write NAME=NAME such as prompt=task")
    return {name.strip(): theirs.strip() for name, _, theirs in pairs} or None


def _numbers(_: Any, __: Any, text: str | None) -> list[float] | None:
    return None if text is None else numbers_argument(text)


def _as_help(text: str, *, is_sentence: bool = True) -> str:
    """Return the first sentence of a description, in the words of the command line.

    Examples
    --------
    >>> _as_help('``"holm"``, see :func:`f`; by ``test="tukey"`` if None. More.')
    'holm; by --test tukey by default.'
    """
    for pattern, new in (
        (r"(?<=[^.\s]{2}[.])\s+(?=[A-Z`]).*", ""),
        (r"(?:[;,] )?\(?\bsee (?:also )?(?::\w+:`[^`]*`|Notes)\)?", ""),
        (r",? or (?:a )?(?:generator|``numpy.random.Generator``)[^;.]*?(?=[;.]| of )", ""),
        (r":\w+:`~?([^`]*)`", r"\1"),
        (r"``(\w+)=\"?([^\"`{]*)\"?``", r"--\1 \2"),
        (r"\bif None\b", "by default"),
        (r"\bIf None\b,?", "By default"),
        (r"\bNone(?: for| is)?\b", "by default"),
        (r"\A[^`].", lambda start: start[0].capitalize() if is_sentence else start[0]),
        (r"[`\"]", ""),
    ):
        text = re.sub(pattern, new, text)
    return f"{text.strip().rstrip('.')}."


# Source text -------------------------------------------------------------------------------------

_REQUIRED = object()
"""Default of a parameter without one."""


@dataclass(frozen=True)
class _SourceParameter:
    """A parameter of a function, or a field of a class."""

    name: str
    annotation: str
    """With the meaning of type aliases."""
    default: Any


@cache
def _statements(module: str) -> list[ast.stmt]:
    """Return the statements of a module, of a package those of its stub, also under an ``if``."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    stub = Path(spec.origin).with_suffix(".pyi")
    text = (stub if stub.exists() else Path(spec.origin)).read_text(encoding="utf-8")
    nodes = ast.parse(text).body
    return [some for node in nodes for some in (node.body if isinstance(node, ast.If) else [node])]


def _defined(module: str, name: str) -> tuple[str, Any] | None:
    """Return the module and the definition of a name that a module has; None of other packages.

    The definition is a function, a class, or the value of an assignment.
    """
    for node in _statements(module):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            place = f"{module}.{node.module}" if node.level else str(node.module)
            return _defined(place, name) if place.startswith("vcomp.") else None
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return module, node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(targets[0], ast.Name) and targets[0].id == name:
            return module, node.value  # type: ignore[attr-defined]
    return None


def _function(place: str) -> tuple[str, Any]:
    """Return the module and the definition of a function, class or method."""
    module, _, path = place.partition(":")
    name, _, method = path.partition(".")
    found = _defined(module, name)
    assert found is not None
    if not method:
        return found
    return next(
        (module, node)
        for module, owner in _lineage(*found)
        for node in owner.body
        if isinstance(node, ast.FunctionDef) and node.name == method
    )


def _lineage(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield a class and its bases."""
    yield module, node
    for base in node.bases:
        found = _defined(module, ast.unparse(base))
        if found is not None:
            yield from _lineage(*found)


def _parameters(module: str, node: Any) -> Iterator[_SourceParameter]:
    """Yield the parameters of a function, or the fields of a class and its bases."""
    if isinstance(node, ast.ClassDef):
        for place, owner in reversed(list(_lineage(module, node))):
            for field in owner.body:
                if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field):
                    yield _parameter(place, ast.unparse(field.target), field, field.value)
        return
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = [None] * (len(positional) - len(node.args.defaults)) + node.args.defaults
    everything = zip(
        [*positional, *node.args.kwonlyargs], [*defaults, *node.args.kw_defaults], strict=True
    )
    for argument, default in everything:
        yield _parameter(module, argument.arg, argument, default)


def _parameter(module: str, name: str, node: Any, default: Any) -> _SourceParameter:
    annotation = "" if node.annotation is None else ast.unparse(node.annotation)
    if isinstance(default, ast.Name):
        _, default = _defined(module, default.id) or (module, default)
    value: Any = _REQUIRED
    if default is not None:
        value = ast.unparse(default)
        with suppress(ValueError):  # an expression, such as math.inf
            value = ast.literal_eval(value)
    return _SourceParameter(name, _with_meanings(module, annotation), value)


def _with_meanings(module: str, annotation: str) -> str:
    """Return an annotation with what type aliases mean."""

    def meaning(name: re.Match[str]) -> str:
        found = _defined(module, name[0])
        if found is None or not isinstance(found[1], ast.expr):
            return name[0]
        return _with_meanings(found[0], ast.unparse(found[1]))

    return re.sub(r"\b[A-Z]\w+", meaning, annotation)


def _descriptions(module: str, node: Any) -> dict[str, str]:
    """Return the first paragraph that the docstring has of each parameter."""
    texts: dict[str, str] = {}
    owners = _lineage(module, node) if isinstance(node, ast.ClassDef) else [(module, node)]
    for _, owner in owners:
        section = re.search(
            r"^(?:Parameters|Attributes)\n-+\n(.*?)(?:\n\n\w+\n---|\Z)",
            ast.get_docstring(owner) or "",
            re.M | re.S,
        )
        entries = "" if section is None else section[1]
        for names, text in re.findall(r"^(\S.*?) : (.*(?:\n +.*)*)", entries, re.M):
            for name in names.split(","):
                texts.setdefault(name.strip(" *"), " ".join(text.split()))
    return texts


# Commands ----------------------------------------------------------------------------------------


class Command(click.Command):
    """A command that makes its options when they are first needed.

    Parameters
    ----------
    name : of the command
    function : does its work; its docstring is the help, with a section of examples
    parts : its options and arguments, in the order of the help
    """

    def __init__(self, name: str, function: Callable[..., None], parts: Sequence[Part]) -> None:
        text, _, examples = inspect.cleandoc(function.__doc__ or "").partition(
            "\n\nExamples\n--------\n"
        )
        first, *more = examples.split("\n\n")
        blocks = [f"Examples:\n{textwrap.indent(first, '  ')}", *more]
        epilog = "\n\n".join(f"\b\n{block}" for block in blocks) if examples else None
        super().__init__(name, callback=function, help=text, epilog=epilog)
        self.parts = parts
        del self.params  # click's list, which is empty

    @cached_property
    def params(self) -> list[click.Parameter]:  # type: ignore[override]
        """The options and arguments."""
        return [parameter for _, some in self._parameters for parameter in some]

    @cached_property
    def _parameters(self) -> list[tuple[Part, Sequence[click.Parameter]]]:
        """The parameters of each part."""
        return [
            (part, part.parameters() if isinstance(part, OptionGroup) else (part,))
            for part in self.parts
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises
        ------
        click.UsageError
            If an option with one value is repeated, of which click uses the last; besides click's
            reasons.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(order).items():
            if not isinstance(parameter, click.Option) or parameter.multiple or parameter.is_flag:
                continue
            if times > 1:
                name = parameter.opts[0]
                instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
                raise click.UsageError(
                    f"{name} is given {times} times, and takes one value{instead}"
                )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, once it is known that its files can be written.

        Raises
        ------
        DataError
            If a file cannot be written, or is one of those that are read.
        """
        files = _files_read(ctx)
        for parameter in self.params:
            value = ctx.params.get(parameter.name or "")
            if value in (None, "-") or not _WRITTEN.intersection(parameter.opts):
                continue
            if "--plot" in parameter.opts:
                output.check_picture(str(value))
            data.target_of(str(value), files)
        for part, parameters in self._parameters:
            if isinstance(part, OptionGroup):
                values = {p.name or "": ctx.params.pop(p.name or "") for p in parameters}
                ctx.params[part.name] = part.value(**values)
        return super().invoke(ctx)


def _files_read(ctx: click.Context) -> list[Path]:
    """Return the files that the arguments of a command name; `merge` may replace one."""
    if ctx.command.name == "merge":
        return []
    read: list[Path] = []
    for parameter in ctx.command.params:
        is_path = isinstance(parameter, click.Argument) or isinstance(parameter.type, click.Path)
        named = ctx.params.get(parameter.name or "")
        if named is None or not is_path or _WRITTEN.intersection(parameter.opts):
            continue
        for value in named if isinstance(named, tuple) else (named,):
            with suppress(VcompError, OSError, ValueError):  # it is something else than a path
                read += [file.path for file in data.data_files([value])]
            read.append(Path(str(value)))
    return read


def command(name: str, *parts: Part) -> Callable[[Callable[..., None]], Command]:
    """Return a decorator that makes a command of a function.

    Parameters
    ----------
    name : of the command
    *parts : its options and arguments, alone or in groups, in the order of the help
    """
    return lambda function: Command(name, function, parts)
