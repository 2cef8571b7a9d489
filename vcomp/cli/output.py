"""Texts and files that the commands write."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from vcomp import display, plots
from vcomp.data import open_source, replacing
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
    alpha: float,
    how: rank.RankOptions | None = None,
) -> str:
    """Return Eτ and Eτ_AP with their estimator and intervals as a table.

    Parameters
    ----------
    facets : that are sampled
    tau, tau_ap : tables of Eτ and Eτ_AP
    alpha : intervals have confidence 1 − alpha
    how : options of the estimates; those of the tables' estimator if None
    """
    if how is None:
        how = rank.RankOptions(estimator=cast("rank.TauEstimator", tau["estimator"].iloc[0]))
    interval = f"{display.level(alpha)} interval"
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
    table = display.simple_table(
        rows,
        [*facets, "Eτ", interval, "Eτ_AP", interval],
        title=f"Correlation of a ranking by n {' × '.join(facets)} with the true ranking",
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


def dataset_text(frame: pd.DataFrame) -> str:
    """Return the list of data sets, each with its formula and description."""
    width = max(60, min(100, shutil.get_terminal_size().columns))
    lines = []
    for name, row in frame.iterrows():
        lines.append(f"{name}  ({display.count(float(row['rows']))} rows: {row['columns']})")
        if row["formula"]:
            lines.append(f"    {row['formula']}")
        lines += textwrap.wrap(
            row["description"], width, initial_indent="    ", subsequent_indent="    "
        )
    return "\n".join(lines)


def as_json(res: Any, study: Any, ranks: Ranks | None) -> str:
    """Return the result as JSON, with the tables of its D-study and rank accuracy."""
    stored = json.loads(res.to_json())
    if study is not None:
        stored["dstudy"] = {
            "object": study.plan.object,
            "design": str(study.plan.design),
            "table": json.loads(study.table.to_json(orient="records", double_precision=15)),
            "notes": list(study.notes),
        }
    if ranks is not None:
        facets, tau, tau_ap = ranks
        stored["rank_accuracy"] = {
            "facet": facets[0] if len(facets) == 1 else list(facets),
            "expected_tau": json.loads(tau.to_json(orient="records", double_precision=15)),
            "expected_tau_ap": json.loads(tau_ap.to_json(orient="records", double_precision=15)),
        }
    return json.dumps(stored, ensure_ascii=False, indent=1)


def write(text: str, file: str) -> None:
    """Write to a file; ``-`` prints the text."""
    if file == "-":
        click.echo(text)
        return
    with replacing(file) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_matrix(path: Path) -> pd.DataFrame:
    """Read a topic × system file; a first column of text, or called topic, names the topics."""
    import pandas as pd

    source = open_source(path)
    frame = source.read(source.columns)
    first = frame.columns[0]
    named = str(first).lower() in ("topic", "topics", "query", "qid") or first.startswith(
        "Unnamed"
    )
    if named or not pd.api.types.is_numeric_dtype(frame[first].dtype):
        frame = frame.set_index(first)
    return frame


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


def draw(res: Any, study: Any, file: str, alpha: float, interval: Any) -> None:
    """Write a picture of the D-study, or of the components if there is none.

    Parameters
    ----------
    res : a fit
    study : its D-study, or None
    file : with an ending that :func:`check_picture` lets pass
    alpha : intervals of the components have confidence 1 − alpha
    interval : how these are made

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    save(res.plot(alpha=alpha, interval=interval) if study is None else study.plot(), file)


def save(axes: Any, file: str) -> None:
    """Write the figure that has these axes, and close it.

    Parameters
    ----------
    axes : of matplotlib
    file : with an ending that :func:`check_picture` lets pass

    Raises
    ------
    DataError
        If the file cannot be written.
    """
    try:
        with replacing(file) as unfinished:
            axes.figure.savefig(unfinished, dpi=200, format=_ending(file))
    finally:
        plots.pyplot().close(axes.figure)
