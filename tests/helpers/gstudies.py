"""G-studies that the tests of D-studies share."""

from collections.abc import Mapping

import numpy as np

from vcomp.formula.brennan import REPLICATE
from vcomp.inference.quantities import TwoWayMeanSquares, VarianceComponents

BODOFF_LI = {
    "p": 0.00751, "i": 0.01596, "a": 0, "pi": 0.01258, "pa": 0.00002, "ia": 0.00143,
    "pia": 0.00176,
}  # fmt: skip
"""Bodoff and Li (2007), Table 1."""


def gstudy(
    values: Mapping[str, float],
    nested_in: Mapping[str, set[str]] | None = None,
    *,
    replicated: bool = False,
    **fields: object,
) -> VarianceComponents:
    """Return components named as in a formula, the residual with all facets."""
    facets = [frozenset(name.split(":")) for name in values if name != "Residual"]
    everything = frozenset().union(*facets, {REPLICATE} if replicated else set())
    return VarianceComponents(
        names=tuple(values),
        facets=(*facets, everything),
        values=np.array(list(values.values()), dtype=float),
        nested_in={f: frozenset(above) for f, above in (nested_in or {}).items()},
        **fields,
    )


def two_way(
    n_s: int, n_q: int, ms_s: float, ms_q: float, ms_e: float, *, n_replicates: int = 1
) -> VarianceComponents:
    """Return the ANOVA of a complete sys × topic table, from its mean squares."""
    ms, df = np.array([ms_s, ms_q, ms_e]), np.array([n_s - 1, n_q - 1, (n_s - 1) * (n_q - 1)])
    M = np.array([[1 / n_q, 0, -1 / n_q], [0, 1 / n_s, -1 / n_s], [0, 0, 1]])
    return gstudy(
        dict(zip(["sys", "topic", "Residual"], M @ ms, strict=True)),
        cov=M @ np.diag(2 * ms**2 / df) @ M.T,
        sizes={"sys": n_s, "topic": n_q},
        mean_squares=TwoWayMeanSquares(
            "sys", "topic", n_s, n_q, ms_s, ms_q, ms_e, n_replicates=n_replicates
        ),
    )


TREC3 = two_way(30, 50, 0.150737177028966, 0.852955110086531, 0.010152247097931)
"""TREC-3 ad hoc without its worst quarter of systems."""

PER_DOCUMENT = gstudy(
    {
        "sys": 2.0, "topic": 1.0, "topic:doc": 3.0, "sys:topic": 0.5, "Residual": 4.0,
    },
    {"doc": {"topic"}},
    sizes={"sys": 10, "topic": 20, "doc": 7},
)  # fmt: skip
"""sys × (doc:topic)."""

REPLICATED = gstudy(
    {"sys": 2.0, "topic": 1.0, "sys:topic": 0.5, "Residual": 4.0},
    replicated=True,
    sizes={"sys": 10, "topic": 20, "replicate": 2},
)
"""sys × topic with two scores in every cell."""
