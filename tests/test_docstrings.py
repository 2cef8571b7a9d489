"""Public docstrings pass numpydoc's checks and name errors; the reference lists all names.

The style is that of CONTRIBUTING.md: a parameter is explained in the line of its name, which
numpydoc reads as its type, and a short function says what it returns in its first sentence.
"""

import ast
import builtins
import importlib
import inspect
import re
import textwrap
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

import pytest
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import ERROR_MSGS, Validator, validate

import vcomp
from tests.test_conventions import (
    CALLABLES,
    FOR_USERS,
    INTERNAL,
    MODULES,
    documented,
    returned_classes,
)

INDEX = Path(__file__).parents[1] / "docs" / "reference" / "index.md"

ON = {
    "GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10",  # the whole
    "SS01", "SS02", "SS03", "SS04", "SS05", "SS06",  # the first sentence
    "PR01", "PR02", "PR03", "PR04", "PR06", "PR10",  # names and order of parameters
    "RT02", "YD01", "SA04",  # what is returned; related names
}  # fmt: skip

OFF = {
    # What is explained in the line of the name is the type for numpydoc; clauses, not sentences.
    "PR05": "the line of the name is no type, and may end a sentence",
    "PR07": "the description begins in the line of the name",
    "PR08": "the description goes on with a small letter",
    "PR09": "the description is a clause",
    "RT03": "the name of a class that is returned is enough where the class is documented",
    "RT04": "the description is a clause",
    "RT05": "the description is a clause",
    "SA02": "the description is a clause",
    "SA03": "the description is a clause",
    # What is not always worth a line.
    "ES01": "one sentence is enough for much",
    "SA01": "related names are links in the text",
    # What a test below checks in another way.
    "RT01": "the first sentence may say what is returned: test_what_is_returned_is_said",
    "EX01": "methods have examples where they help: test_functions_have_examples",
}  # fmt: skip


# Users read and draw the structure of their data; how rows are read is for the package.
NOT_FOR_USERS = INTERNAL - {"Structure"} | {"Reading"}


# The public names --------------------------------------------------------------------------------


def door(module):
    """Return the public names of a module."""
    if module in FOR_USERS:
        return FOR_USERS[module].split()
    return importlib.import_module(module).__all__


def functions_of(cls):
    """Return the functions of a class's own public methods and properties, by name."""
    found = {}
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, cached_property):
            value = value.func
        else:
            value = getattr(cls, name)
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("vcomp"):
            found[name] = value
    return found


@cache
def public_classes():
    """Return the classes of the doors, and those that public functions and attributes return."""
    seen = []

    def visit(cls):
        known = cls in seen or cls.__name__ in NOT_FOR_USERS
        if known or issubclass(cls, BaseException):
            return
        seen.append(cls)
        for function in functions_of(cls).values():
            if inspect.isroutine(function):
                follow(function)

    def follow(function):
        for cls in returned_classes(function):
            visit(cls)

    for module in MODULES:
        for name in door(module):
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value):
                visit(value)
            elif inspect.isroutine(value):
                follow(value)
    return tuple(seen)


def documented_objects():
    """Return all that has a docstring of its own, by name; functions for properties."""
    found = dict(CALLABLES)
    for cls in public_classes():
        found[cls.__name__] = cls
        for name, function in functions_of(cls).items():
            found.setdefault(f"{cls.__name__}.{name}", function)
    return found


OBJECTS = documented_objects()


# Tests -------------------------------------------------------------------------------------------


def test_checks_of_numpydoc_are_on_or_off_for_a_reason():
    """Those of a later numpydoc are neither, and fail nothing until they are judged."""
    assert set(ERROR_MSGS) >= ON
    assert not ON & set(OFF)
    assert all(OFF.values())


def problems(name, value):
    """Return what numpydoc finds, of the checks that are on."""
    doc = get_doc_object(value)
    found = {code: text for code, text in validate(doc)["errors"] if code in ON}
    if inspect.isclass(value) and not Validator(doc).doc_parameters:
        found.pop("PR01", None)  # the library makes its instances
    if name not in CALLABLES:
        found.pop("SS05", None)  # properties are nouns, which may end in s
    if "PR03" in found and names_in_order(value):
        del found["PR03"]
    return found


def names_in_order(value):
    """Return whether parameters are in order, ``**n`` beside the ``sizes`` that it fills."""
    given = [name for name in Validator(get_doc_object(value)).doc_parameters if name != "**n"]
    return given == [p for p in inspect.signature(value).parameters if p in given]


@pytest.mark.slow
def test_numpydoc_finds_nothing():
    found = {name: problems(name, value) for name, value in OBJECTS.items()}
    assert {name: errors for name, errors in found.items() if errors} == {}


def test_what_is_returned_is_said():
    silent = set()
    for name, value in OBJECTS.items():
        text = inspect.getdoc(value)
        annotation = None if inspect.isclass(value) else inspect.signature(value).return_annotation
        says = re.search(r"^(Returns|Yields)\n-", text, re.M) or re.match("Return |Yield ", text)
        if name in CALLABLES and annotation not in (None, "None") and not says:
            silent.add(name)
    assert not silent


def test_functions_have_examples():
    functions = [name for name in CALLABLES if name.startswith("vcomp.")]
    assert [name for name in functions if ">>>" not in inspect.getdoc(CALLABLES[name])] == []


def named_errors(value):
    """Return the errors and warnings that a docstring names in its sections on them."""
    doc = get_doc_object(value)
    texts = [entry.type for section in ("Raises", "Warns") for entry in doc[section]]
    return {name for text in texts for name in text.split(", ")}


def error(name):
    return getattr(vcomp, name, getattr(builtins, name, None))


def test_errors_that_are_named_exist():
    named = {name: named_errors(value) for name, value in OBJECTS.items()}
    assert {n: errors for n, errors in named.items() if not all(map(error, errors))} == {}


def raised_errors(value):
    """Return the errors of vcomp that the body of a function raises itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(value))))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    names = {getattr(exc.func, "id", "") for exc in raised if isinstance(exc, ast.Call)}
    return {name for name in names if name.endswith("Error") and hasattr(vcomp, name)}


def test_errors_that_are_raised_are_named():
    silent = {}
    for name, value in OBJECTS.items():
        if inspect.isroutine(value):
            named = tuple(error(n) for n in named_errors(value))
            more = {n for n in raised_errors(value) if not issubclass(error(n), named)}
            if more:
                silent[name] = more
    assert silent == {}


def test_fields_of_records_are_explained():
    silent = set()
    for cls in public_classes():
        known = set().union(*(documented(base) for base in cls.__mro__ if base is not object))
        names = [field.name for field in fields(cls)] if is_dataclass(cls) else []
        silent |= {f"{cls.__name__}.{n}" for n in names if n[0] != "_" and n not in known}
    assert not silent


def test_the_reference_lists_every_name():
    listed = set(re.findall(r"^   ~?(vcomp\.[\w.]+)$", INDEX.read_text(encoding="utf-8"), re.M))
    values = [of_path(path) for path in listed]
    absent = {cls.__qualname__ for cls in public_classes() if cls not in values}
    for module in (*MODULES, "vcomp.ir.measures"):
        for name in door(module):
            value = getattr(importlib.import_module(module), name)
            is_type_of_option = not (inspect.isclass(value) or inspect.isroutine(value))
            if not is_type_of_option and value not in values:
                absent.add(f"{module}.{name}")
    for cls in ("VarianceComponentsResults", "DStudy", "MultivariateResults"):
        absent |= {
            f"{cls}.{name}" for name in functions_of(getattr(vcomp, cls))
            if f"vcomp.{cls}.{name}" not in listed
        }  # fmt: skip
    assert not absent


def of_path(path):
    """Return what a dotted name stands for."""
    owner = vcomp
    for part in path.split(".")[1:]:
        if not hasattr(owner, part):
            owner = importlib.import_module(f"{owner.__name__}.{part}")
        else:
            owner = getattr(owner, part)
    return owner


AVOIDED = re.compile(
    r"\b([Oo]f (?:which|whom)|at hand|told|said|in turn|(?:is|are|was|were) none|as dear"
    r"|stands? for|from \d on|beside|[Ww]hat (?:\w+ ){0,3}(?:is|are)\b)",
)


def first_sentences(path):
    """Yield the line and text of each docstring's first paragraph, constant's text and message."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
            text = ast.get_docstring(node) or ""
            yield getattr(node, "lineno", 1), text.split("\n\n")[0]
        elif isinstance(node, ast.Raise):
            parts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
            yield node.lineno, "…".join(part for part in parts if isinstance(part, str))
        body = getattr(node, "body", ())
        for before, after in pairwise(body if isinstance(body, list) else ()):
            if isinstance(before, (ast.Assign, ast.AnnAssign)) and isinstance(after, ast.Expr):
                yield after.lineno, getattr(after.value, "value", None) or ""


@pytest.mark.slow
def test_first_sentences_name_things_by_nouns():
    """CONTRIBUTING.md, "Prose": no riddles in descriptions and messages."""
    riddles = [
        f"{path.name}:{line}: {found[0]}"
        for path in Path(vcomp.__path__[0]).rglob("*.py")
        for line, text in first_sentences(path)
        if (found := AVOIDED.search(" ".join(str(text).split())))
    ]
    assert not riddles, "use a noun, or two sentences"
