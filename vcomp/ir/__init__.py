"""Reliability of information retrieval experiments, from a topic × system matrix of scores."""

from importlib import import_module
from typing import Any

from lazy_loader import attach_stub

_own_attribute, _, __all__ = attach_stub(__name__, __file__)

_STUDIES = ["AssessorStudy", "assessor_study", "per_document_study"]
"""Public names of studies that fit models, which are made above this room."""

__all__ += _STUDIES


def __getattr__(name: str) -> Any:
    if name in _STUDIES:
        return getattr(import_module("vcomp.studies"), name)
    return _own_attribute(name)


def __dir__() -> list[str]:
    return sorted(__all__)
