"""What README and docs name that vcomp does not have: commands, functions, options, their values.

The pages are read as text. What their code computes is checked when the site is built.
"""

import ast
import importlib
import inspect
import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path

import vcomp
from tests.test_conventions import options
from vcomp.cli.main import cli

ROOT = Path(__file__).parents[2]
BUILT = ("docs/pictures", "docs/reference/api", "docs/jupyter_execute")
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not page.relative_to(ROOT).as_posix().startswith(BUILT)
]
SHELLS = {"", "sh", "bash", "console", "shell", "text"}
PYTHON = {"python", "pycon", "span"}
COMMANDS = {name: cli.get_command(None, name) for name in cli.list_commands(None)}
OPTIONS = {
    name: {"--help", *(text for p in command.params for text in (*p.opts, *p.secondary_opts))}
    for name, command in COMMANDS.items()
}
VALUES = {name: values for name, values in options(text=False).items() if values}
CLASSES = {
    "res": (
        vcomp.VarianceComponentsResults,
        vcomp.MultivariateResults,
        type(vcomp.from_components({"p": 1.0})),
    ),
    "study": (vcomp.DStudy, vcomp.VarianceComponentsResults, vcomp.evals.EvalStudy),
}
"""What the names of results in the pages stand for."""

OTHERS = {
    "--env",  # of docker
    *("--log-dir", "--no-log-samples"),  # of Inspect
    *("--save-details", "--output-dir"),  # of lighteval
    "--output_path",  # of lm-evaluation-harness
    "--record_path",  # of OpenAI evals
    "--repeat",  # of promptfoo
    "--again",  # of tools.mutation.mutate
    "--slow",
    "--tests",
    "vcomp.json",  # a file in stored statistics
    'method="map"',  # of an estimator that a page adds
    'interval="drawn"',  # of an interval that a page adds
    "vcomp.measures",
    "vcomp.intervals",  # groups of entry points
    "vcomp.split_half",  # an old name, in the page of the decision to replace it
}
"""What the pages name that is not vcomp's."""


# Pages -------------------------------------------------------------------------------------------


def text_of(page):
    """Return the text of a page without the front matter."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)


@cache
def code_of(text):
    """Return the code of a page as pairs of language and text; "span" is code within a line."""
    blocks, prose, fence, directives = [], [], None, []
    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,})\s*(.*?)\s*$", line)
        if fence is not None:
            if mark and mark[1] == fence and not mark[2]:
                fence = None
            else:
                blocks[-1][1].append(line)
        elif not mark and line.startswith("    vcomp "):
            blocks.append(("sh", [line]))
        elif not mark:
            prose.append(line)
        elif directives and directives[-1] == mark[1] and not mark[2]:
            directives.pop()
        elif mark[2].startswith("{") and not mark[2].startswith(("{code-cell}", "{code-block}")):
            directives.append(mark[1])
        else:
            fence = mark[1]
            blocks.append((mark[2].split()[-1] if mark[2] else "", []))
    found = [(language, "\n".join(lines)) for language, lines in blocks]
    spans = re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "\n".join(prose), re.DOTALL)
    return found + [("span", " ".join(span.replace("\\|", "|").split())) for _, span in spans]


# Commands ----------------------------------------------------------------------------------------


def calls_of_commands(text):
    """Yield the commands of a page, each as the words after ``vcomp``."""
    for language, code in code_of(text):
        if language not in SHELLS | {"span"}:
            continue
        for line in code.replace("\\\n", " ").splitlines():
            for found in re.finditer(r"(?:^|[\s/$])vcomp ([a-z][a-z-]*\b.*)", line):
                before = line[: found.start(1)]
                if not re.search(r"\b(import|install|from|of|in|by)\s+vcomp $", before):
                    try:
                        yield shlex.split(found[1], comments=True)
                    except ValueError:  # the rest of a line of output, or a part of a command
                        yield found[1].split()


def wrong_commands(text):
    """Return the commands, options and values of options that the program does not have."""
    wrong = []
    for command, *words in calls_of_commands(text):
        if command not in COMMANDS:
            wrong.append(f"vcomp {command}")
            continue
        for word, following in pairwise([*words, ""]):
            if word in ("|", "&&", ";", ">"):
                break
            name, _, value = word.partition("=")
            if name.startswith("--") and name not in OPTIONS[command]:
                wrong.append(f"vcomp {command} {name}")
            allowed = VALUES.get(name.removeprefix("--"))
            if name.startswith("--") and allowed and (value or following) not in allowed:
                wrong.append(f"vcomp {command} {name} {value or following}")
    every = OTHERS.union(*OPTIONS.values(), {"--version"})
    spans = [span for language, span in code_of(text) if language == "span"]
    lone = [span.split()[0] for span in spans if re.match(r"--[a-z]", span)]
    return wrong + [name for name in lone if name.partition("=")[0] not in every]


# Names, options and their values -----------------------------------------------------------------


@cache
def members(cls):
    """Return the names of a class's attributes, those of its instances included."""
    return {a for c in cls.__mro__ for a in (*vars(c), *inspect.get_annotations(c))}


def resolve(chain):
    """Return what ``vcomp.a.b`` is; raise AttributeError or ImportError if there is none."""
    owner, path = vcomp, "vcomp"
    for name in chain:
        path = f"{path}.{name}"
        if inspect.isclass(owner) and name in members(owner):
            owner = getattr(owner, name, None)
        else:
            if not hasattr(owner, name):
                importlib.import_module(path)
            owner = getattr(owner, name)
    return owner


def chain_of(node):
    """Return the names of ``a.b.c``, from the left; an empty list for another expression."""
    if isinstance(node, ast.Attribute):
        before = chain_of(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


def wrong_names(tree):
    """Return the names in a piece of Python that the library does not have."""
    for node in ast.walk(tree):
        chain = chain_of(node) if isinstance(node, ast.Attribute) else []
        if chain[:1] == ["vcomp"]:
            try:
                resolve(chain[1:])
            except (AttributeError, ImportError):
                yield ".".join(chain)
        elif (
            chain
            and chain[0] in CLASSES
            and not any(chain[1] in members(cls) for cls in CLASSES[chain[0]])
        ):
            yield ".".join(chain)


def functions_of(chain):
    """Return the functions of the library that a call may mean, none if it means another's."""
    try:
        found = [resolve(chain[1:])] if chain[:1] == ["vcomp"] and len(chain) > 1 else []
    except (AttributeError, ImportError):  # of which wrong_names complains
        return []
    if len(chain) == 2 and chain[0] in CLASSES:
        found = [getattr(cls, chain[1], None) for cls in CLASSES[chain[0]]]
    return [function for function in found if callable(function)]


def wrong_options(tree):
    """Return the options, and the values of options, that no function takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            functions = functions_of(chain_of(node.func))
            parameters = [p for f in functions for p in inspect.signature(f).parameters.values()]
            if not functions or any(p.kind is p.VAR_KEYWORD for p in parameters):
                taken = None
            else:
                taken = {p.name for p in parameters}
            for option in node.keywords:
                if taken is not None and option.arg not in taken | {None}:
                    yield f"{ast.unparse(node.func)}({option.arg}=)"
                elif functions:
                    yield from wrong_value(option.arg, option.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield from wrong_value(node.targets[0].id, node.value)


def wrong_value(option, value):
    """Yield ``option="value"`` if the option has no such value."""
    text = value.value if isinstance(value, ast.Constant) else None
    if isinstance(text, str) and text not in VALUES.get(option, {text}):
        yield f'{option}="{text}"'


def sources_of(language, code):
    """Yield the Python in a block or span; of a role of the site, its text and its target."""
    if language == "span":
        role = re.fullmatch(r"(.+) <~?([\w.]+)>", code)
        yield from role.groups() if role else (code,)
    elif ">>>" in code:
        lines = [line.strip() for line in code.splitlines()]
        yield "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ")))
    else:  # without the options of a cell, and magic commands
        yield re.sub(r"\A---\n(.*\n)*?---\n|^(:\w|[%!]).*$", "", code, flags=re.M)


def wrong_python(text):
    """Return what is wrong in the Python of a page: its blocks, and expressions in its lines."""
    wrong = []
    for language, code in code_of(text):
        for source in sources_of(language, code) if language in PYTHON else ():
            try:
                tree = ast.parse(re.sub(r",\s*…\)", ")", source).replace("…", "..."))
            except SyntaxError:  # a part of a line
                continue
            wrong += [*wrong_names(tree), *wrong_options(tree)]
    return [name for name in wrong if name not in OTHERS]
