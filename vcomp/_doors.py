"""Public names of packages, imported when they are first used.

The stub beside a package's ``__init__.py`` lists its names once, for type checkers and for this
module: ``from .design import Chunk as Chunk`` in ``__init__.pyi`` makes ``Chunk`` a name of the
package, and ``design`` is imported when the name is first used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_NAME = re.compile(r"^from \.(\S*) import (\w+)", re.MULTILINE)


def front_door(
    package: str, filename: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Parameters
    ----------
    package, filename : ``__name__`` and ``__file__`` of its ``__init__.py``
    """
    homes = _homes(Path(filename).with_suffix(".pyi").read_text(encoding="utf-8"))
    module = sys.modules[package]

    def find(name: str) -> Any:
        if name not in homes:
            text = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=module)
        home = homes[name]
        if home is None:
            value: Any = import_module(f"{package}.{name}")
        else:
            value = getattr(import_module(f"{package}.{home}"), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        # What the module imports for itself is no name of the package.
        return sorted({*(name for name in vars(module) if name.startswith("__")), *homes})

    return find, names, sorted(homes)


def _homes(stub: str) -> dict[str, str | None]:
    """Return the module of each name of a stub; None for a name that is a module itself."""
    return {name: module or None for module, name in _NAME.findall(stub)}
