"""The model of a design that is claimed in Brennan's notation, with what the data tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vcomp.design.claim import read_claim
from vcomp.design.rows import Missing
from vcomp.exceptions import warn
from vcomp.model import VarianceComponentsModel

__all__ = ["claimed_model"]


def claimed_model(
    design: str,
    response: str,
    data: Any,
    facets: Mapping[str, str] | None,
    missing: Missing,
    environment: Any,
) -> VarianceComponentsModel:
    """Return the model of a design in Brennan's notation, with all effects that the data tell.

    Parameters
    ----------
    design, response, data, facets, missing : as for :func:`vcomp.gstudy`
    environment : patsy's ``EvalEnvironment`` of the caller

    Warns
    -----
    VcompWarning
        If the data confound effects of the design.
    """
    claim = read_claim(design, response, data, facets, environment, missing)
    confounded = claim.in_words()
    if confounded is not None:
        warn(confounded)
    model = VarianceComponentsModel(claim.formula, claim.rows, eval_env=environment)
    model.design = replace(model.design, structure=claim.described(model.design.structure))
    return model
