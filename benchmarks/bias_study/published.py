"""Tables 2 to 8 of Urbano (2016), as printed: shares of variance in percent, and totals.

Numbers are those of the article and of the repository of its author (its tables under CC BY-SA
4.0), https://github.com/julian-urbano/irj2015-reliability. A share below 1 % is printed as "< 1"
there and is 0 here.
"""

from __future__ import annotations

from dataclasses import dataclass

TOTAL = "total"
"""The sum of the components of a column, negative ones included."""


@dataclass(frozen=True, slots=True)
class Published:
    """A table of variance decompositions.

    Attributes
    ----------
    number : of the table
    title : what is decomposed
    kind : ``"diagnosis"``, ``"existing"`` or ``"new"``
    columns : indicators or estimators
    factors : of the model, the residual last
    shares : percent of the total, a row a factor
    totals : of the columns
    """

    number: int
    title: str
    kind: str
    columns: tuple[str, ...]
    factors: tuple[str, ...]
    shares: tuple[tuple[int, ...], ...]
    totals: tuple[float, ...]


_MAIN = ("normal", "homoscedastic", "uncorrelated", "random", "n", "collection", "Residual")
_NEW = (*_MAIN[:4], "target", "n", "n:target", "collection", "Residual")
_RANKS = (
    *("tau.exp1", "tau.exp2", "tau.logit", "Etau"),
    *("tau_ap.exp1", "tau_ap.exp2", "tau_ap.logit", "Etau_ap"),
)
_SENSITIVITIES = (
    *("sens_abs.exp1", "sens_abs.exp2", "sens_abs.logit"),
    *("sens_rel.exp1", "sens_rel.exp2", "sens_rel.logit"),
)
_COEFFICIENTS = ("Erho2", "Phi", "F")

TABLES = (
    Published(
        2,
        "indicators of the simulated collections",
        "diagnosis",
        ("mu_s", "tau_ap", "w2_t", "w2_E", "var_s", "var_t", "var_st", "sd_var", "cor"),
        _MAIN,
        (
            (0, 2, 2, 15, 2, 0, 1, 0, 0),
            (0, 0, 0, 1, 0, 0, 0, 31, 0),
            (0, 2, 0, 0, 2, 0, 0, 0, 98),
            (0, 6, 45, 14, 44, 70, 62, 0, 0),
            (0, 38, 2, 21, 0, 0, 0, 16, 0),
            (0, 23, 7, 6, 4, 2, 3, 11, 0),
            (99, 29, 44, 42, 48, 27, 34, 42, 1),
        ),
        (
            *(0.021576, 0.027913, 0.00029, 1.8e-05, 0.001796),
            *(0.034139, 0.025925, 4.3e-05, 0.359783),
        ),
    ),
    Published(
        3,
        "errors of estimates of τ and τ_AP of an existing collection",
        "existing",
        _RANKS,
        _MAIN,
        (
            (0, 0, 0, 1, 0, 0, 0, 2),
            (0, 0, 0, 0, 0, 0, 0, 0),
            (8, 6, 7, 7, 8, 6, 7, 7),
            (10, 9, 10, 13, 10, 9, 10, 14),
            (25, 22, 24, 9, 24, 26, 24, 9),
            (8, 4, 8, 11, 9, 4, 9, 6),
            (48, 59, 50, 57, 49, 56, 50, 62),
        ),
        (0.020506, 0.02153, 0.0204, 0.013484, 0.017522, 0.019541, 0.01742, 0.011576),
    ),
    Published(
        4,
        "errors of estimates of the sensitivities of an existing collection",
        "existing",
        _SENSITIVITIES,
        _MAIN,
        (
            (0, 0, 0, 0, 1, 1),
            (0, 0, 0, 0, 0, 0),
            (5, 5, 2, 9, 9, 5),
            (2, 4, 3, 4, 5, 8),
            (32, 5, 12, 27, 10, 10),
            (18, 3, 0, 3, 3, 1),
            (43, 83, 83, 56, 72, 75),
        ),
        (0.005142, 0.002439, 0.00328, 0.022557, 0.018034, 0.021989),
    ),
    Published(
        5,
        "errors of estimates of Eρ², Φ and F of an existing collection",
        "existing",
        _COEFFICIENTS,
        _MAIN,
        ((0, 0, 0), (0, 0, 0), (7, 0, 0), (15, 80, 0), (5, 5, 35), (3, 0, 24), (70, 15, 40)),
        (0.023804, 0.225422, 0.104402),
    ),
    Published(
        6,
        "errors of estimates of the expected τ and τ_AP of a new collection",
        "new",
        _RANKS,
        _NEW,
        (
            (0, 0, 0, 2, 0, 0, 0, 3),
            (0, 0, 0, 0, 0, 0, 0, 0),
            (5, 2, 5, 12, 4, 0, 5, 12),
            (7, 5, 8, 22, 7, 4, 8, 23),
            (2, 11, 3, 0, 0, 13, 2, 0),
            (18, 1, 14, 9, 21, 2, 17, 12),
            (6, 9, 3, 2, 8, 10, 5, 2),
            (13, 2, 14, 15, 14, 2, 14, 8),
            (48, 70, 52, 37, 46, 68, 51, 40),
        ),
        (0.029472, 0.044426, 0.02696, 0.008038, 0.026484, 0.047685, 0.024196, 0.007057),
    ),
    Published(
        7,
        "errors of estimates of the expected sensitivities of a new collection",
        "new",
        _SENSITIVITIES,
        _NEW,
        (
            (0, 0, 0, 2, 3, 4),
            (0, 0, 0, 0, 0, 0),
            (2, 4, 3, 4, 4, 4),
            (1, 3, 4, 0, 0, 1),
            (18, 3, 35, 3, 2, 7),
            (6, 0, 1, 12, 1, 0),
            (21, 30, 4, 11, 5, 2),
            (14, 2, 8, 2, 1, 1),
            (38, 57, 44, 65, 83, 81),
        ),
        (0.009411, 0.00276, 0.002409, 0.051931, 0.038165, 0.035532),
    ),
    Published(
        8,
        "errors of estimates of the expected Eρ², Φ and F of a new collection",
        "new",
        _COEFFICIENTS,
        _NEW,
        (
            *((0, 0, 0), (0, 0, 0), (7, 0, 0), (19, 86, 0), (3, 4, 46)),
            *((2, 0, 0), (0, 0, 0), (4, 0, 31), (64, 9, 23)),
        ),
        (0.018862, 0.210417, 0.082082),
    ),
)
