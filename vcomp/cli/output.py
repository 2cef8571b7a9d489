"""What commands write: texts, tables, pictures, JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from vcomp import data, display, plots
from vcomp.cli.inputs import grouped, option
from vcomp.cli.main import in_options
from vcomp.exceptions import DataError
from vcomp.ir import rank

if TYPE_CHECKING:
    import pandas as pd

Ranks = tuple[tuple[str, ...], "pd.DataFrame", "pd.DataFrame"]
"""The sampled facets, and tables of Eτ and Eτ_AP."""

_ESTIMATORS = {
    "shrunken": "Estimator: shrunken, with differences of systems shrunk by their reliability.",
    "urbano": "Estimator: urbano, as published (Urbano, 2016), which overstates the accuracy.",
}

_INTERVALS = {
    "test": "Intervals are for the correlations of one such ranking.",
    "expectation": "Intervals are for the expected correlations themselves.",
    "independent": "Intervals treat swaps as independent, which they are not: they are too short.",
}


def rank_accuracy(
    res: Any,
    sizes: Mapping[str, Sequence[float]],
    plan: Mapping[str, Any],
    alpha: float,
    estimator: rank.TauEstimator = "shrunken",
) -> Ranks:
    """Return the sampled facets, and Eτ and Eτ_AP at the sizes of the D-study.

    Parameters
    ----------
    res : a fit
    sizes : of the sampled facets
    plan : design, object, fixed facets and universe of the D-study, where they are given
    alpha : intervals have confidence 1 − alpha
    estimator : ``"shrunken"`` or ``"urbano"``
    """
    options = {"sizes": sizes, "estimator": estimator, "alpha": alpha, **plan}
    tau, tau_ap = res.expected_tau(**options), res.expected_tau(variant="ap", **options)
    columns = tuple(tau.columns[: tau.columns.get_loc("estimate")])
    if columns != ("n",):
        return columns, tau, tau_ap
    ranked = plan.get("object") or res.design.facets[0]
    others = [f for f in res.design.facets if f != ranked]
    return (next(iter(sizes), others[0]),), tau, tau_ap


def fit_text(res: Any, study: Any, ranks: Ranks | None, alpha: float, interval: Any) -> str:
    """Return the summary of a fit, its D-study and its rank accuracy."""
    parts = [str(res.summary(alpha, interval))]
    if study is not None:
        parts.append(str(study.summary()))
    if ranks is not None:
        parts.append(rank_text(*ranks, alpha))
    return "\n\n".join(parts)


def rank_text(
    facets: tuple[str, ...],
    tau: pd.DataFrame,
    tau_ap: pd.DataFrame,
    alpha: float = 0.05,
    target: rank.TauTarget = "test",
    interval: rank.TauInterval = "auto",
) -> str:
    """Return Eτ and Eτ_AP with their estimator and intervals as a table.

    Parameters
    ----------
    facets : that are sampled
    tau, tau_ap : tables of Eτ and Eτ_AP
    alpha, target, interval : options of the intervals
    """
    how = rank.RankOptions(
        estimator=cast("rank.TauEstimator", tau["estimator"].iloc[0]),
        target=target,
        interval=interval,
    )
    limits = f"{display.level(alpha)} interval"
    rows = [
        (
            *map(display.count, sizes),
            display.coefficient(a.estimate),
            display.coefficient_interval(a.low, a.high),
            display.coefficient(b.estimate),
            display.coefficient_interval(b.low, b.high),
        )
        for sizes, a, b in zip(
            tau.iloc[:, : len(facets)].to_numpy(), _rows(tau), _rows(tau_ap), strict=True
        )
    ]
    sampled = " × ".join(map(display.levels_of, facets))
    table = display.simple_table(
        rows,
        [*facets, "Eτ", limits, "Eτ_AP", limits],
        title=f"Correlation of a ranking by n {sampled} with the true ranking",
    )
    notes = [
        "Eτ: expected Kendall correlation with the true ranking; Eτ_AP gives its top more weight.",
        _ESTIMATORS[how.estimator],
        _INTERVALS["independent" if how.independent else how.target],
    ]
    return str(display.summary([table], notes))


def both_ranks(tau: pd.DataFrame, tau_ap: pd.DataFrame) -> pd.DataFrame:
    """Return Eτ and Eτ_AP in one table, with a row for each measure and size."""
    import pandas as pd

    named = {"tau": tau, "tau_ap": tau_ap}
    return pd.concat(named, names=["measure"]).reset_index("measure").reset_index(drop=True)


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    return iter(frame.itertuples())


def as_json(res: Any, study: Any, ranks: Ranks | None) -> str:
    """Return the result as JSON, with the tables of its D-study and rank accuracy."""
    stored = json.loads(res.to_json())
    if study is not None:
        stored["dstudy"] = {
            "object": study.plan.object,
            "design": str(study.plan.design),
            "table": _records(study.table),
            "notes": list(study.notes),
        }
    if ranks is not None:
        facets, tau, tau_ap = ranks
        stored["rank_accuracy"] = {
            "facet": facets[0] if len(facets) == 1 else list(facets),
            "expected_tau": _records(tau),
            "expected_tau_ap": _records(tau_ap),
        }
    return json.dumps(stored, ensure_ascii=False, indent=1)


def _records(table: pd.DataFrame) -> Any:
    return json.loads(_as_json_text(table))


def _as_json_text(table: pd.DataFrame) -> str:
    return str(table.to_json(orient="records", double_precision=15, force_ascii=False))


def write(text: str, file: str) -> None:
    """Write to a file; ``-`` prints the text."""
    if file == "-":
        click.echo(text)
        return
    with data.replacing(file) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def check_picture(file: str) -> None:
    """Refuse a file whose ending is not that of a picture, before anything is computed.

    Parameters
    ----------
    file : such as ``"reliability.svg"``

    Raises
    ------
    DataError
        If the ending is not one that matplotlib can write.
    VcompError
        If matplotlib is not installed.
    """
    plots.pyplot()
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    ending = _ending(file)
    if ending not in known:
        raise DataError(
            f"cannot draw {file!r}: its ending has to be one of {', '.join(known)}, such as "
            f"{Path(file).stem or 'picture'}.png"
        )


def _ending(file: str) -> str:
    return Path(file).suffix.removeprefix(".").lower()


def save(axes: Any, file: str) -> None:
    """Write the figure that has these axes, and close it.

    Parameters
    ----------
    axes : of matplotlib, or a sequence of them
    file : with an ending that :func:`check_picture` lets pass

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    figure = (axes if hasattr(axes, "figure") else axes[0]).figure
    try:
        with data.replacing(file) as unfinished:
            figure.savefig(unfinished, dpi=200, format=_ending(file))
    finally:
        plots.pyplot().close(figure)


@dataclass(frozen=True)
class Shown:
    """Options for printing and drawing a result."""

    format_: str
    picture: str | None = None
    show: int = 0
    kind: str = "groups"

    def result(self, result: Any, table: Any = None) -> None:
        """Print a result, and draw it if a picture is requested.

        Parameters
        ----------
        result : has a table, a text and a method ``plot``
        table : instead of its own
        """
        self.table(result.table if table is None else table, str(result))
        if self.picture is not None:
            save(result.plot(), self.picture)

    def pairs(self, comparisons: Any) -> None:
        """Print pairwise comparisons, with the first ones in the text, and draw them."""
        self.table(comparisons.table, str(comparisons.summary(self.show)))
        if self.picture is not None:
            save(comparisons.plot(self.kind), self.picture)

    def table(self, table: pd.DataFrame, text: str) -> None:
        """Print a table as CSV or JSON, or else the text."""
        if self.format_ == "csv":
            text = str(table.to_csv(index=False)).rstrip("\n")
        elif self.format_ == "json":
            text = _as_json_text(table)
        else:
            text = in_options(text, click.get_current_context().command)
        click.echo(text)


PICTURE = option("--plot picture", "Draw a picture: FILE.png, .svg or .pdf.", metavar="FILE")

_FORMAT = option(
    "--format format_",
    "Format of the output.",
    default="text",
    type=click.Choice(["text", "csv", "json"]),
)

PRINTED = grouped("shown", Shown, _FORMAT)
"""Options for the output of a result without a picture."""

SHOWN = grouped("shown", Shown, PICTURE, _FORMAT)
"""Options for the output of a result."""

PAIRS = grouped(
    "shown",
    Shown,
    option("--show", "Largest number of pairs to show.", type=click.IntRange(min=0), default=20),
    PICTURE,
    option(
        "--kind",
        "Kind of picture: groups without significant differences, or the p-values of all pairs.",
        type=click.Choice(["groups", "p_values"]),
        default="groups",
    ),
    _FORMAT,
)
"""Options for the output of comparisons in pairs."""
