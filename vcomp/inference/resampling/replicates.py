"""Replicates of an estimate: their table and file, and bootstrap intervals from them.

The methods are in docs/explanation/mathematics.md, section 10.7.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args
from zipfile import BadZipFile, ZipFile

import numpy as np

from vcomp._typing import BoolArray, FloatArray, LongArray
from vcomp.codec import from_plain, read_array, read_member, to_plain
from vcomp.data import replacing
from vcomp.exceptions import DataError, EstimationError, check_alpha
from vcomp.formula import parameter_names
from vcomp.inference.intervals import Limits
from vcomp.inference.quantities import Projected, Quantities, Scale, Smooth

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = 1
_SAME = 1e-6
"""Largest relative difference of estimates of the same fit."""

_UNREADABLE = (
    OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, OverflowError,
    NotImplementedError, RecursionError, BadZipFile, TokenError, SyntaxError,
)  # fmt: skip
"""What zip, JSON, numpy's headers (read as Python's literals) and :func:`from_plain` raise."""


@dataclass(frozen=True, slots=True, repr=False)
class Replicates:
    """Estimates from data that were drawn from a fit, or from parts of its data.

    Attributes
    ----------
    kind : kind of replicates, such as ``"parametric"``
    names : of the components, the residual last
    fixed_names : of the fixed effects
    numbers : (B,) numbers of the replicates, ascending from 0; each has its own random stream, so
        that it does not depend on how many others there are
    values : (B, k + 1) components
    beta : (B, p) fixed effects
    llf : (B,) log-likelihood; nan for methods without one
    converged : (B,) whether each estimation converged; values of others may be nan
    seed : seed of the random streams of all replicates
    requested : number of requested replicates
    fingerprint : identification of the refitted fit: text and numbers by name
    adjusted : (B, k + 1) components adjusted for the bias of resampling; None without adjustment
    notes : remarks on the replicates, clauses without a full stop

    Examples
    --------
    >>> import vcomp
    >>> res = vcomp.fit("score ~ (1|sys) + (1|topic)", vcomp.datasets.load("bodoff2007_alpha"))
    >>> replicates = res.bootstrap(200, rng=1)
    >>> replicates.kind, len(replicates), replicates.frame.shape
    ('parametric', 200, (200, 6))
    >>> replicates.frame.columns.tolist()
    ['Intercept', 'var(sys)', 'var(topic)', 'var(Residual)', 'llf', 'converged']
    """

    kind: str
    names: tuple[str, ...]
    fixed_names: tuple[str, ...]
    numbers: LongArray
    values: FloatArray
    beta: FloatArray
    llf: FloatArray
    converged: BoolArray
    seed: int
    requested: int
    fingerprint: Mapping[str, Any] = field(default_factory=dict)
    adjusted: FloatArray | None = None
    notes: tuple[str, ...] = ()

    _arrays: ClassVar[tuple[str, ...]] = (
        "numbers", "values", "beta", "llf", "converged", "adjusted",
    )  # fmt: skip

    def __repr__(self) -> str:
        names = ", ".join(self.names)
        return f"<{type(self).__name__}: {len(self):,} {self.kind} of {names}; seed {self.seed}>"

    def __len__(self) -> int:
        return int(self.numbers.size)

    @property
    def drawn_facets(self) -> tuple[str, ...]:
        """Facets whose levels were drawn or left out; empty if responses were drawn."""
        return tuple(self.fingerprint.get("facets", ()))

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each replicate: fixed effects, components, llf, converged.

        Components are ``var(…)``, covariances of slopes ``cov(…)``. With an adjustment, also
        ``adjusted(…)`` of the components. The index, ``replicate``, numbers the replicates.
        """
        import pandas as pd

        columns: dict[str, Any] = dict(zip(self.fixed_names, self.beta.T, strict=True))
        columns |= dict(zip(parameter_names(self.names), self.values.T, strict=True))
        if self.adjusted is not None:
            columns |= {
                f"adjusted({n})": x for n, x in zip(self.names, self.adjusted.T, strict=True)
            }
        columns |= {"llf": self.llf, "converged": self.converged}
        return pd.DataFrame(columns, index=pd.Index(self.numbers, name="replicate"))

    def first(self, n: int) -> Replicates:
        """Return the replicates with numbers below `n`.

        Parameters
        ----------
        n : number of replicates to keep, with their own random streams as if no more had been made
        """
        kept = self.numbers < n
        return replace(
            self,
            requested=n,
            numbers=self.numbers[kept],
            values=self.values[kept],
            beta=self.beta[kept],
            llf=self.llf[kept],
            converged=self.converged[kept],
            adjusted=None if self.adjusted is None else self.adjusted[kept],
        )

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return percentile intervals of fixed effects and components, in columns 0 and 1.

        Those of the fit, of any quantity, and other kinds of bootstrap intervals:
        ``res.conf_int(interval=replicates)``. Replicates that did not converge are left out.

        Parameters
        ----------
        alpha : intervals have confidence 1 − alpha

        Raises
        ------
        EstimationError
            If there are fewer than two replicates that converged.
        PlanError
            If alpha is not between 0 and 1.
        """
        import pandas as pd

        check_alpha(alpha)
        if self.converged.sum() < 2:
            raise EstimationError("an interval needs at least 2 replicates that converged")
        components = self.values if self.adjusted is None else self.adjusted
        both = np.hstack([self.beta, components])[self.converged]
        ends = np.nanquantile(both, [alpha / 2.0, 1.0 - alpha / 2.0], axis=0)
        names = [*self.fixed_names, *parameter_names(self.names)]
        return pd.DataFrame(ends.T, index=names)

    def plot(
        self,
        component: str,
        *,
        estimate: float | None = None,
        limits: tuple[float, float] | None = None,
        alpha: float = 0.05,
        ax: Any | None = None,
    ) -> Any:
        """Draw the histogram of a component, of adjusted values if there are any.

        Parameters
        ----------
        component : its name
        estimate : of the component, marked by a line; that of the refitted fit if None
        limits : interval of the component, marked if it is given
        alpha : the interval has confidence 1 − alpha
        ax : matplotlib axes to draw on; those of a new figure if None

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        DataError
            If there is no such component, or fewer than 2 finite replicates.
        PlanError
            If alpha is not between 0 and 1.
        VcompError
            If matplotlib is not installed.
        """
        from vcomp import plots

        if component not in self.names:
            known = ", ".join(map(repr, self.names))
            raise DataError(
                f"there is no component {component!r}; there are {known}", term=component
            )
        values = self.values if self.adjusted is None else self.adjusted
        if estimate is None and "estimates" in self.fingerprint:
            estimate = float(self.fingerprint["estimates"][self.names.index(component)])
        return plots.replicates(
            values[:, self.names.index(component)],
            f"σ²({component})",
            estimate=estimate,
            interval=limits,
            alpha=alpha,
            ax=ax,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the replicates to a file (numpy's npz) with all digits.

        An existing file of that name is replaced only when the new one is complete.

        Parameters
        ----------
        path : of the file, with any ending

        Raises
        ------
        DataError
            If the file cannot be written.
        """
        arrays = {name: getattr(self, name) for name in self._arrays}
        arrays = {name: array for name, array in arrays.items() if array is not None}
        texts = {name: to_plain(getattr(self, name)) for name in _texts(type(self))}
        texts["asked"] = texts.pop("requested")  # its name in files
        about = {"format": _FORMAT} | texts
        with replacing(path) as beside, beside.open("wb") as file:
            np.savez(file, about=np.array(json.dumps(about)), **arrays)

    def _check(self) -> None:
        """Raise a ValueError if the arrays have other shapes than the names state."""
        n = self.numbers.size
        shapes: list[tuple[Any, tuple[int, ...]]] = [
            (self.numbers, (n,)),
            (self.values, (n, len(self.names))),
            (self.beta, (n, len(self.fixed_names))),
            (self.llf, (n,)),
            (self.converged, (n,)),
        ]
        if self.adjusted is not None:
            shapes.append((self.adjusted, (n, len(self.names))))
        if not all(array.shape == shape for array, shape in shapes):
            raise ValueError("its numbers contradict each other")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Replicates:
        """Return the replicates from a file that :meth:`save` wrote.

        Parameters
        ----------
        path : of a file that :meth:`save` wrote

        Raises
        ------
        DataError
            If there is no such file, or it does not contain replicates.
        """
        try:
            with ZipFile(path) as archive:
                known = set(archive.namelist())
                stored = {
                    name: read_array(read_member(archive, f"{name}.npy"))
                    for name in ("about", *cls._arrays)
                    if f"{name}.npy" in known
                }
            about, arrays = json.loads(str(stored.pop("about"))), stored
            if about.pop("format") != _FORMAT:
                raise DataError(f"{path} has another version of the format; make it again")
            about["requested"] = about.pop("asked", None)
            if set(about) != set(_texts(cls)):
                raise DataError(
                    f"{path} holds replicates of the kind {about['kind']!r}, which "
                    f"{cls.__name__}.load does not read"
                )
            made = from_plain(cls, about | arrays)
            made._check()
            return made
        except FileNotFoundError:
            raise DataError(f"there is no file {path}") from None
        except DataError:
            raise
        except _UNREADABLE:
            raise DataError(f"{path} does not hold replicates as Replicates.save writes") from None


def check_same(
    known: Replicates, kind: str, fingerprint: Mapping[str, Any], where: object
) -> None:
    """Refuse replicates that are not of this kind and fit.

    Parameters
    ----------
    known : the replicates
    kind, fingerprint : of the requested replicates
    where : where these replicates come from, for the message

    Raises
    ------
    DataError
        If they differ; the message has the first difference, with both values.
    """
    for name, wanted in {"kind": kind, **fingerprint}.items():
        found = known.kind if name == "kind" else known.fingerprint.get(name)
        if not _is_same(found, wanted):
            raise DataError(
                f"{where} holds replicates of another fit: their {name} is {found!r}, and "
                f"this fit's is {wanted!r}; give another path, or delete the file"
            )


def _texts(cls: type[Replicates]) -> list[str]:
    """Return the fields that are not arrays."""
    return [f.name for f in fields(cls) if f.name not in cls._arrays]


def _is_same(found: Any, wanted: Any) -> bool:
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        try:
            a, b = np.array(found, dtype=float), np.array(wanted, dtype=float)
        except (TypeError, ValueError):
            return bool(found == wanted)
        size = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
        return bool(np.allclose(a, b, rtol=0.0, atol=_SAME * size, equal_nan=True))
    return bool(found == wanted)


BootstrapType: TypeAlias = Literal["percentile", "basic", "bias-corrected"]

_FEW = 20
"""Number of replicates beyond an end of an interval below which a note calls it uncertain."""


@dataclass(frozen=True, slots=True)
class FromReplicates:
    """Intervals from quantiles of bootstrap replicates.

    Parameters
    ----------
    replicates : of the components and fixed effects; adjusted values are used if there are any
    estimates : (k,) components of the fit
    beta : (p,) its fixed effects
    bootstrap_type : ``"percentile"``: quantiles of the replicates; ``"basic"``: these quantiles
        reflected at the estimate, on the log or logit scale; ``"bias-corrected"``: quantiles moved
        by the share of replicates below the estimate (Efron 1981)
    negative : how negative components are used, in the fit and in every replicate: ``"keep"``, or
        ``"zero"`` as in D-studies

    Raises
    ------
    EstimationError
        If the bootstrap type is not known, or there are fewer than two replicates.

    References
    ----------
    Davison and Hinkley (1997), Bootstrap Methods and their Application, sec. 5.2 and 5.3.
    """

    replicates: Replicates
    estimates: FloatArray
    beta: FloatArray
    bootstrap_type: BootstrapType = "percentile"
    negative: Projected = "keep"

    def __post_init__(self) -> None:
        if self.bootstrap_type not in get_args(BootstrapType):
            known = ", ".join(map(repr, get_args(BootstrapType)))
            raise EstimationError(
                f"bootstrap_type={self.bootstrap_type!r} is not known; it is one of {known}"
            )
        if len(self.replicates) < 2:
            raise EstimationError(
                f"an interval needs at least 2 replicates (some hundreds are better), not "
                f"{len(self.replicates)}"
            )

    @property
    def interval(self) -> str:
        """The name of this source of intervals, ``"bootstrap"``."""
        return "bootstrap"

    def limits(self, quantities: Quantities | Smooth, alpha: float) -> Limits:
        """Return intervals with confidence 1 − alpha.

        Replicates in which a quantity is not defined are left out, with a note.
        """
        check_alpha(alpha)
        values, estimate = self._values(quantities)
        low, high, absent = _each(values, estimate, alpha, self.bootstrap_type, quantities.scale)
        usable = len(self.replicates) - absent
        words = f"{self.bootstrap_type} of {usable:,} {self.replicates.kind} replicates"
        notes = list(self.replicates.notes)
        if absent:
            notes.append(
                f"in {absent:,} of {len(self.replicates):,} replicates the estimation did not "
                "converge or the quantity is not defined; they are left out"
            )
        if usable * alpha / 2.0 < _FEW:
            notes.append(
                f"with {usable:,} replicates the ends are uncertain; "
                f"use {int(np.ceil(2.0 * _FEW / alpha)):,} or more"
            )
        return Limits(low, high, words, tuple(notes))

    def _values(self, quantities: Quantities | Smooth) -> tuple[FloatArray, FloatArray]:
        """Return (B, m) values of the replicates and (m,) those of the fit."""
        made = self.replicates
        components = made.values if made.adjusted is None else made.adjusted
        estimates = self.estimates
        if self.negative == "zero":
            components, estimates = np.maximum(components, 0.0), np.maximum(estimates, 0.0)
        if isinstance(quantities, Quantities):
            values = quantities.values(components)
            estimate = quantities.values(estimates)
        else:
            pairs = zip(components, made.beta, strict=True)
            values = np.array([[quantities.function(v, b)] for v, b in pairs])
            estimate = np.array([quantities.function(estimates, self.beta)])
        return np.where(made.converged[:, None], values, np.nan), estimate


def _each(
    values: FloatArray, estimate: FloatArray, alpha: float, kind: str, scale: Scale
) -> tuple[FloatArray, FloatArray, int]:
    low, high = np.full(estimate.size, np.nan), np.full(estimate.size, np.nan)
    absent = 0
    for j, (column, center) in enumerate(zip(values.T, estimate, strict=True)):
        known = column[~np.isnan(column)]
        absent = max(absent, column.size - known.size)
        if known.size > 1 and not np.isnan(center):
            low[j], high[j] = _interval(known, float(center), alpha, kind, scale)
    return low, high, absent


def _interval(
    values: FloatArray, estimate: float, alpha: float, kind: str, scale: Scale
) -> tuple[float, float]:
    tails = np.array([alpha / 2.0, 1.0 - alpha / 2.0])
    if kind == "bias-corrected":
        from scipy.special import ndtr, ndtri

        below = (np.sum(values < estimate) + 0.5 * np.sum(values == estimate)) / values.size
        # If all replicates lie on one side, half a replicate is added on the other.
        share = min(max(float(below), 0.5 / values.size), 1.0 - 0.5 / values.size)
        tails = ndtr(2.0 * ndtri(share) + ndtri(tails))
    low, high = np.quantile(values, tails)
    if kind != "basic":
        return float(low), float(high)
    to, back = TRANSFORMS[scale]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        center, *ends = to(np.array([estimate, high, low]))
        reflected = back(2.0 * center - np.array(ends))
    # At an estimate at the end of the scale quantiles cannot be reflected.
    if not np.isfinite(center):
        return float(low), float(high)
    return float(reflected[0]), float(reflected[1])


Transform: TypeAlias = Callable[[FloatArray], FloatArray]


def _identity(x: FloatArray) -> FloatArray:
    return x


def _logit(x: FloatArray) -> FloatArray:
    from scipy.special import logit

    return logit(x)


def _share(x: FloatArray) -> FloatArray:
    from scipy.special import expit

    return expit(x)


TRANSFORMS: dict[Scale, tuple[Transform, Transform]] = {
    "real": (_identity, _identity),
    "variance": (np.log, np.exp),
    "share": (_logit, _share),
    "correlation": (np.arctanh, np.tanh),
}
"""Transformations to the real line and back, by range of values."""
