"""patsy's description of a coding as plain data, which can be pickled, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcomp._typing import FloatArray
from vcomp.exceptions import DataError


@dataclass(frozen=True, slots=True)
class PlainFactor:
    """A factor of the fixed part as plain data, which can be pickled.

    Attributes
    ----------
    code : Python expression
    n_columns : number of columns of a numerical factor; None for a categorical one
    categories : levels of a categorical factor
    transforms : attributes of each stateful transform
    """

    code: str
    n_columns: int | None
    categories: tuple[Any, ...] | None
    transforms: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, info: Any) -> PlainFactor:
        """Return the plain data of patsy's ``FactorInfo``.

        Raises
        ------
        DataError
            If the state of a transform cannot be read.
        """
        code = info.factor.code
        try:
            memory = {name: dict(vars(t)) for name, t in info.state["transforms"].items()}
        except TypeError:  # it has slots
            raise DataError(
                f"the state of {code!r}, computed from all rows, cannot be sent to other processes"
            ) from None
        return cls(code, info.num_columns, info.categories, memory)

    def restored(self, environment: Any) -> Any:
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
class PlainSubterm:
    """A part of a term: some of its columns.

    Attributes
    ----------
    factors : positions among all factors
    contrasts : for each categorical factor the (levels, columns) matrix and names of its columns
    n_columns : number of columns
    """

    factors: tuple[int, ...]
    contrasts: Mapping[int, tuple[FloatArray, tuple[str, ...]]]
    n_columns: int


@dataclass(frozen=True, slots=True)
class PlainCoding:
    """The coding of a fixed part as plain data, which can be pickled.

    Attributes
    ----------
    names : of the columns
    factors : of all terms, in any order
    terms : for each term the positions of its factors, and its parts
    """

    names: tuple[str, ...]
    factors: tuple[PlainFactor, ...]
    terms: tuple[tuple[tuple[int, ...], tuple[PlainSubterm, ...]], ...]

    @classmethod
    def of(cls, info: Any) -> PlainCoding:
        """Return the plain data of patsy's ``DesignInfo``.

        Raises
        ------
        DataError
            If a transform cannot be read.
        """
        place = {factor: k for k, factor in enumerate(info.factor_infos)}
        terms = []
        for term, subterms in info.term_codings.items():
            parts = tuple(
                PlainSubterm(
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
        factors = tuple(PlainFactor.of(found) for found in info.factor_infos.values())
        return cls(tuple(info.column_names), factors, tuple(terms))

    def restored(self, scope: Mapping[str, Any]) -> Any:
        """Return the ``DesignInfo``.

        Parameters
        ----------
        scope : names from the caller's scope that the factors use
        """
        from patsy import ContrastMatrix, DesignInfo, EvalEnvironment, SubtermInfo, Term

        environment = EvalEnvironment([dict(scope)])
        infos = [factor.restored(environment) for factor in self.factors]
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
