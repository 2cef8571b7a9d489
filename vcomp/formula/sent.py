"""patsy's memory of a coding as plain values: it cannot be pickled, and other machines need it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError

__all__ = ["SentCoding"]


@dataclass(frozen=True, slots=True)
class SentFactor:
    """A factor: its code, and what was learned of it.

    Attributes
    ----------
    code : expression of Python
    n_columns : of a numerical factor; None of a categorical one
    categories : of a categorical factor
    transforms : for each stateful transform what it remembers, by attribute
    """

    code: str
    n_columns: int | None
    categories: tuple[Any, ...] | None
    transforms: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, info: Any) -> SentFactor:
        """Take patsy's ``FactorInfo`` apart.

        Raises
        ------
        DataError
            If a transform keeps its memory where it cannot be read.
        """
        code = info.factor.code
        try:
            memory = {name: dict(vars(t)) for name, t in info.state["transforms"].items()}
        except TypeError:  # it has slots
            raise DataError(f"what {code!r} learned of all rows cannot be sent") from None
        return cls(code, info.num_columns, info.categories, memory)

    def received(self, environment: Any) -> Any:
        """Return the ``FactorInfo``."""
        from patsy import EvalFactor, FactorInfo

        factor, state = EvalFactor(self.code), dict[str, Any]()
        factor.memorize_passes_needed(state, environment)
        for name, memory in self.transforms.items():
            vars(state["transforms"][name]).clear()
            vars(state["transforms"][name]).update(memory)
        kind = "numerical" if self.categories is None else "categorical"
        return FactorInfo(factor, kind, state, self.n_columns, self.categories)


@dataclass(frozen=True, slots=True)
class SentSubterm:
    """Some columns of a term.

    Attributes
    ----------
    factors : their places among all factors
    contrasts : for each categorical one the (levels, columns) matrix, and names of its columns
    n_columns : that these factors make together
    """

    factors: tuple[int, ...]
    contrasts: Mapping[int, tuple[FloatArray, tuple[str, ...]]]
    n_columns: int


@dataclass(frozen=True, slots=True)
class SentCoding:
    """The coding of a fixed part.

    Attributes
    ----------
    names : of the columns
    factors : in any order
    terms : for each term the places of its factors, and its parts
    """

    names: tuple[str, ...]
    factors: tuple[SentFactor, ...]
    terms: tuple[tuple[tuple[int, ...], tuple[SentSubterm, ...]], ...]

    @classmethod
    def of(cls, info: Any) -> SentCoding:
        """Take patsy's ``DesignInfo`` apart.

        Raises
        ------
        DataError
            If it cannot be.
        """
        place = {factor: k for k, factor in enumerate(info.factor_infos)}
        terms = []
        for term, subterms in info.term_codings.items():
            parts = tuple(
                SentSubterm(
                    tuple(place[f] for f in s.factors),
                    {
                        place[f]: (c.matrix, tuple(c.column_suffixes))
                        for f, c in s.contrast_matrices.items()
                    },
                    s.num_columns,
                )
                for s in subterms
            )
            terms.append((tuple(place[f] for f in term.factors), parts))
        factors = tuple(SentFactor.of(found) for found in info.factor_infos.values())
        return cls(tuple(info.column_names), factors, tuple(terms))

    def received(self, scope: Mapping[str, Any]) -> Any:
        """Return the ``DesignInfo``.

        Parameters
        ----------
        scope : names of the caller's scope that the factors use
        """
        from patsy import ContrastMatrix, DesignInfo, EvalEnvironment, SubtermInfo, Term

        environment = EvalEnvironment([dict(scope)])
        infos = [factor.received(environment) for factor in self.factors]
        codings: OrderedDict[Any, list[Any]] = OrderedDict()
        for factors, subterms in self.terms:
            codings[Term([infos[k].factor for k in factors])] = [
                SubtermInfo(
                    [infos[k].factor for k in s.factors],
                    {
                        infos[k].factor: ContrastMatrix(matrix, list(suffixes))
                        for k, (matrix, suffixes) in s.contrasts.items()
                    },
                    s.n_columns,
                )
                for s in subterms
            ]
        return DesignInfo(list(self.names), {info.factor: info for info in infos}, codings)
