"""D-studies, intervals of coefficients and mapping curves in closed form.

Nothing of vcomp is used here: these numbers check it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

Values = dict[str, Any]


def coefficients(tau: float, relative: float, absolute: float) -> Values:
    return {
        "tau": tau,
        "sigma2_delta": relative,
        "sigma2_Delta": absolute,
        "Erho2": tau / (tau + relative),
        "Phi": tau / (tau + absolute),
        "sem_rel": math.sqrt(relative),
        "sem_abs": math.sqrt(absolute),
        "sn_rel": tau / relative,
        "sn_abs": tau / absolute,
    }


def dstudy(shares: dict[str, float], with_object: set[str], universe: set[str]) -> Values:
    """Return coefficients from the components of mean scores over a plan.

    ``universe`` belongs to the universe score; the rest of what contains the object is relative
    error, and all of the rest absolute error. What is negative counts as 0.
    """
    positive = {name: max(value, 0.0) for name, value in shares.items()}
    tau = sum(positive[name] for name in universe)
    relative = sum(positive[name] for name in with_object - universe)
    return coefficients(tau, relative, sum(positive.values()) - tau)


def p_by_i(c: Values, n: float) -> Values:
    shares = {"person": c["person"], "item": c["item"] / n, "Residual": c["Residual"] / n}
    return {"n_i": n} | dstudy(shares, {"person", "Residual"}, {"person"})


def i_within_p(c: Values, n: float) -> Values:
    error = (c.get("item", 0.0) + c["Residual"]) / n
    return {"n_i": n} | dstudy({"person": c["person"], "i": error}, {"person", "i"}, {"person"})


def p_by_i_by_o(c: Values, row: Values, fixed: str = "") -> Values:
    """Return a row of the three-facet design: crossed, or with i nested in o or o in i."""
    n_i, n_o = row["n_i"], row["n_o"]
    many = n_i * n_o
    i = many if "I:O" in row.get("design", "") else n_i
    o = many if "O:I" in row.get("design", "") else n_o
    sizes = {"person": 1, "i": i, "o": o, "person:i": i, "person:o": o, "i:o": many}
    shares = {name: c[name] / sizes.get(name, many) for name in c}
    universe = {"person", f"person:{fixed}"} if fixed else {"person"}
    if fixed:  # the levels of a fixed facet are no sample: they add no error
        shares[fixed] = 0.0
    head = {k: row[k] for k in ("n_i", "n_o", "design") if k in row}
    return head | dstudy(shares, {n for n in c if "person" in n} | {"Residual"}, universe)


def p_by_r_within_t(c: Values, n_t: int, n_r: int, fixed: bool = False) -> Values:
    many = n_t * n_r
    sizes = {"person": 1, "t": n_t, "person:t": n_t, "t:r": many, "Residual": many}
    shares = {name: c[name] / size for name, size in sizes.items()}
    universe = {"person", "person:t"} if fixed else {"person"}
    if fixed:
        shares["t"] = 0.0
    head = {"n_t": n_t, "n_r": n_r}
    return head | dstudy(shares, {"person", "person:t", "Residual"}, universe)


def required(rel: Values, c: Values, key: str) -> Values:
    """Return how many items a coefficient needs, of the error of one item."""
    one = rel[key]
    found = {}
    for target in ("0.5", "0.7", "0.8", "0.9", "0.95"):
        n = float(target) / (1.0 - float(target)) * one / c["person"]
        found[target] = {"n_exact": n, "n_ceil": math.ceil(n - 1e-9)}
    return found


def dstudy_values(name: str, values: Values) -> Values:
    """Return the D-studies of one stored file again, from its components and sizes."""
    c = values["components"]
    if "inverse_effective_n" in values:
        shares = {k: v * values["inverse_effective_n"][k] for k, v in c.items()}
        object_ = values["object"]
        return dstudy(shares, {k for k in c if object_ in k} | {"Residual"}, {object_})
    if name.endswith("synthetic1"):
        one = p_by_i(c, 1)
        needs = {
            "Erho2": required(one, c, "sigma2_delta"),
            "Phi": required(one, c, "sigma2_Delta"),
        }
        return {
            "p_x_I": [p_by_i(c, row["n_i"]) for row in values["p_x_I"]],
            "I_nested_in_p": [i_within_p(c, row["n_i"]) for row in values["I_nested_in_p"]],
            "required_n": {t: {k: v[t] for k, v in needs.items()} for t in needs["Phi"]},
        }
    if name.endswith("synthetic2"):
        need = required(i_within_p(c, 1), c, "sigma2_delta")
        return {
            "I_nested_in_p": [i_within_p(c, row["n_i"]) for row in values["I_nested_in_p"]],
            "required_n": {t: {"Erho2": v, "Phi": v} for t, v in need.items()},
        }
    if name.endswith("synthetic3"):
        fixed = {"random": "", "i_fixed": "i", "o_fixed": "o", "nested": ""}
        return {k: [p_by_i_by_o(c, row, f) for row in values[k]] for k, f in fixed.items()}
    return {
        key: [p_by_r_within_t(c, row["n_t"], row["n_r"], fixed) for row in values[key]]
        for key, fixed in (("random", False), ("t_fixed", True))
    }


# R's gt4ireval -----------------------------------------------------------------------------------


def gt4ireval_values(values: Values) -> Values:
    """Return components, and coefficients with intervals, from the mean squares of a table.

    Feldt (1965) for Eρ²; Arteaga, Jeyaratnam and Franklin (1982) for Φ; alpha is one tail.
    """
    n_s, n_q = values["n_s"], values["n_q"]
    s, q, e = values["ms_s"], values["ms_q"], values["ms_e"]
    var_s, var_q = max((s - e) / n_q, 0.0), max((q - e) / n_s, 0.0)
    rows = [*values["dstudy_by_queries"], values["dstudy_default"]]
    found = [_row(row, (n_s, n_q, s, q, e), (var_s, var_q)) for row in rows]
    needed = [_needed(row, (var_s, var_q, e)) for row in values["dstudy_by_stability"]]
    return {
        "var_s": var_s, "var_q": var_q, "var_e": e, "dstudy_by_queries": found[:-1],
        "dstudy_default": found[-1], "dstudy_by_stability": needed,
    }  # fmt: skip


def _row(row: Values, table: tuple[float, ...], variances: tuple[float, float]) -> Values:
    n_s, n_q, s, q, e = table
    n, (var_s, var_q) = row["queries"], variances
    df_s, df_q = n_s - 1, n_q - 1
    found = {"queries": n, "Erho2": var_s / (var_s + e / n)}
    found["Phi"] = var_s / (var_s + (var_q + e) / n)
    for end, tail in (("lwr", row["alpha"]), ("upr", 1.0 - row["alpha"])):
        f_e = stats.f.isf(tail, df_s, df_s * df_q)
        f_q, f_infinite = stats.f.isf(tail, df_s, df_q), stats.chi2.isf(tail, df_s) / df_s
        zeta = (s / e / f_e - 1.0) / n_q
        top = s**2 - f_infinite * s * e + (f_infinite - f_e) * f_e * e**2
        ratio = top / (df_s * f_infinite * s * e + f_q * s * q)
        share = n_s * ratio / (n_s * ratio + n_q)
        found[f"Erho2_{end}"] = n * zeta / (1.0 + n * zeta)
        found[f"Phi_{end}"] = n * share / (1.0 + (n - 1.0) * share)
    return found


def _needed(row: Values, variances: tuple[float, float, float]) -> Values:
    var_s, var_q, e = variances
    odds = row["stability"] / (1.0 - row["stability"])
    return {
        "stability": row["stability"],
        "n_q_Erho2": math.ceil(odds * e / var_s),
        "n_q_Phi": math.ceil(odds * (var_q + e) / var_s),
    }


def mapping_values(values: Values) -> Values:
    """Return the published curves: powers of the coefficient, or of what it lacks."""
    x = np.array(values["x"])
    rising = ("tau", "tauAP", "power")
    return {
        f"gt2{name}": ((x if name in rising else 1.0 - x) ** power).tolist()
        for name, power in values["exponents"].items()
    }
