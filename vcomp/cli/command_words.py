"""Advice in the words of the command line."""

from __future__ import annotations

import re

import click

_ARGUMENT = re.compile(
    r"\b(\w+)=('[^']*'(?:(?:, '[^']*')* or '[^']*')?|\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|[\w.…]*)"
)
"""An argument of a function in a message: ``method='reml' or 'ml'``, ``hold={'a': 1}``, a list."""

_CODE = re.compile(r",\s+as\s+table\.\w+\([^)]*\)|\s+\(of\s+vcomp\.[\w.]+\)")
"""Code that does to a frame what the words before it say, and the function of an argument."""


def in_options(message: str, command: click.Command | None) -> str:
    """Return a message with the arguments of functions as options: ``--method reml or ml``.

    Parameters
    ----------
    message : may be broken into lines
    command : whose options they are
    """
    options = [p for p in command.params if isinstance(p, click.Option)] if command else []
    spellings = {option.name: option.opts[0] for option in options}

    def spelled(found: re.Match[str]) -> str:
        is_in_call = re.search(r"\w\([^()]*$", message[: found.start()])
        if found[1] not in spellings or is_in_call:
            return found[0]
        given = " ".join(found[2].strip("{}[]").split())
        value = re.sub(r"['\"]([\w.:-]+)['\"]", r"\1", given).replace(": ", "=")
        value = value.replace(", ", ",") if found[2].startswith("[") else value
        return f"{spellings[found[1]]} {value}".rstrip()

    return _ARGUMENT.sub(spelled, _CODE.sub("", message))
