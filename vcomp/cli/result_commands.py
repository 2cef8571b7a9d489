"""``vcomp dstudy``, ``gauge`` and ``precision``: stored results and published components."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vcomp import display, studies
from vcomp.cli.command_options import command, options_of
from vcomp.cli.inputs import (
    PUBLISHED,
    OptionGroup,
    names_given,
    numbers_argument,
    option,
    single_sizes,
    sizes_argument,
    stored_or_published,
)
from vcomp.cli.output import PRINTED, SHOWN, Shown, save


def plan_options(left_out: str, **changes: Any) -> OptionGroup:
    """Return the options of a D-study.

    Parameters
    ----------
    left_out : parameters without an option
    **changes : of options
    """
    return options_of(
        "vcomp:VarianceComponentsResults.dstudy",
        name="plan",
        left_out=f"self sizes {left_out}",
        object=option("--object", "The object of measurement, such as p or d:p.", metavar="FACET"),
        fixed=option(
            "--fixed",
            "A fixed facet: its levels are the whole universe.",
            multiple=True,
            metavar="FACET",
            callback=names_given,
        ),
        universe=option(
            "--universe",
            "The size of a finite universe.",
            multiple=True,
            metavar="FACET=N",
            callback=lambda _, __, texts: single_sizes(texts) or None,
        ),
        within=option(
            "--within",
            "Compare objects within the levels of this facet.",
            multiple=True,
            metavar="FACET",
            callback=names_given,
        ),
        **changes,
    )


_SEARCH = options_of(
    "vcomp:DStudy.optimize",
    name="search",
    only="cost budget designs n_objects top",
    prefix="With --cost: ",
    cost=option("--cost", "Prices, such as '50*topic + 2*topic:judge + 1000'.", metavar="TEXT"),
    budget="With --cost: find the best design within it.",
    designs=option(
        "--alternative designs", "With --cost: another design to compare.", multiple=True
    ),
    n_objects=option("--n-objects", "With --cost: number of objects measured.", type=int),
)


@command(
    "dstudy",
    click.Argument(["arguments"], nargs=-1, metavar="[RESULT.json] [FACET=N,N…]…"),
    PUBLISHED,
    plan_options(
        left_out="",
        layout=option(
            "--layout", "A table of the planned observations.", type=click.Path(path_type=Path)
        ),
        interval="How intervals are made: auto, mls, robust, f, log, wald.",
    ),
    option("--goal", "Also print the sizes that reach this coefficient.", type=float),
    option("--facet", "With --goal: the facet whose size is sought.", metavar="FACET"),
    option("--cut", "Cut scores λ: print the dependability Φ(λ).", metavar="X,X…"),
    option(
        "--coefficient",
        "Erho2, Phi, or an error: rel_err_var, abs_err_var, rel_sem, abs_sem, se_difference, "
        "width, rank_set. By default Erho2 with --cost, and with --goal alone both coefficients.",
    ),
    _SEARCH,
    option("--plot picture", "With --cost: draw the frontier.", metavar="FILE"),
)
def dstudy(
    arguments: Sequence[str],
    published: Any,
    plan: dict[str, Any],
    goal: float | None,
    facet: str | None,
    cut: str | None,
    coefficient: str | None,
    search: dict[str, Any],
    picture: str | None,
) -> None:
    r"""Plan a D-study from a stored result, or from published components or mean squares.

    FACET=N are the sizes of the D-study. With published mean squares, or components and the
    --sizes of their G-study, the components are printed first, with intervals.

    Examples
    --------
    vcomp fit "score ~ (1|sys) + (1|topic)" scores.csv --json fit.json
    vcomp dstudy fit.json topic=50,100 --goal .95
    vcomp dstudy --components "p=.00751 i=.01596 a=0 pi=.01258 pa=.00002 ia=.00143 pia=.00176" \
        i=50,100 a=1,2 --cost "5*i + i:a" --budget 1000 --alternative "p x (a:i)"
    """
    file, sizes = _result_and_sizes(arguments)
    cost = search.get("cost")
    source = stored_or_published(file, published)
    if facet is not None and (goal is None or cost is not None):
        raise click.UsageError("--facet needs --goal, and cannot be used with --cost")
    if goal is None and cost is None and coefficient is not None:
        raise click.UsageError("--coefficient needs --goal, or --cost with --budget")
    study = source.dstudy(sizes=sizes_argument(sizes), **plan)
    texts = []
    if published is not None and (published.anova is not None or published.reason):
        texts.append(str(published.summary(plan.get("alpha", 0.05), plan.get("interval", "auto"))))
    texts.append(str(study.summary()))
    if cut is not None:
        texts.append(_cut_score_text(study, numbers_argument(cut)))
    if cost is None:
        _refuse_without_cost(search, picture)
    else:
        texts.append(_allocation_text(study, search, goal, coefficient, picture))
    click.echo("\n\n".join(texts))
    if goal is not None and cost is None:
        for name in ("Erho2", "Phi") if coefficient is None else (coefficient,):
            click.echo(str(study.required(goal, name, facet)))


def _result_and_sizes(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the file of a result, if there is one, and the texts of sizes."""
    files = [a for a in arguments if "=" not in a]
    if len(files) > 1:
        raise click.UsageError(f"{files[1]!r} is not a size; write FACET=N such as topic=50")
    return (files[0] if files else None), [a for a in arguments if "=" in a]


def _cut_score_text(study: Any, cuts: Sequence[float]) -> str:
    """Return a table of Φ(λ) as text."""
    table = study.phi_lambda(cuts)
    ends = zip(table["low"], table["high"], strict=True)
    facets = list(table.columns[: table.columns.get_loc("cut")])
    cells = [[display.count(n) for n in table[f]] for f in facets]
    cells += [
        [display.number(float(c)) for c in table["cut"]],
        [display.coefficient(v) for v in table["estimate"]],
        [display.coefficient_interval(low, high) for low, high in ends],
    ]
    header = [*facets, "λ", "Φ(λ)", f"{display.level(study.alpha)} interval"]
    shown = display.simple_table(
        list(zip(*cells, strict=True)), header, title="Decisions by a cut score λ"
    )
    return str(display.summary([shown], ["Φ(λ): dependability of decisions by the cut score λ."]))


def _refuse_without_cost(search: dict[str, Any], picture: str | None) -> None:
    options = [p.opts[0] for p in _SEARCH.parameters() if p.name in search]
    if options or picture is not None:
        option = (options or ["--plot"])[0]
        raise click.UsageError(f"{option} needs --cost, such as --cost '50*topic + 1000'")


def _allocation_text(
    study: Any,
    search: dict[str, Any],
    goal: float | None,
    coefficient: str | None,
    picture: str | None,
) -> str:
    """Return the best design for a budget or a goal, and draw the frontier."""
    if ("budget" in search) == (goal is not None):
        raise click.UsageError("--cost needs one of --budget and --goal")
    if "designs" in search:
        search = {**search, "designs": [str(study.plan.design), *search["designs"]]}
    allocation = study.optimize(goal=goal, coefficient=coefficient or "Erho2", **search)
    if picture is not None:
        save(allocation.plot(), picture)
    return str(allocation)


_RESULT = click.Argument(["result"], required=False, type=click.Path(path_type=Path))


@command(
    "gauge",
    _RESULT,
    PUBLISHED,
    options_of(
        "vcomp.studies:gauge_rr",
        left_out="res",
        part="The facet of the parts.",
        operator="The facet of the operators.",
        interval="How intervals are made: auto, mls, robust, log, wald.",
    ),
    SHOWN,
)
def gauge(result: Path | None, published: Any, how: dict[str, Any], shown: Shown) -> None:
    r"""Divide the variation of measurements between parts and gauge (gauge R&R).

    RESULT.json is a stored result of a fit; or give published components with the --sizes of
    their study, or published mean squares. CSV and JSON have a row for each source of variation.

    Examples
    --------
    vcomp gauge fit.json --part part --operator operator --tolerance .4
    vcomp gauge --mean-squares 'part=9.818 operator=1.584 part:operator=.0199 Residual=.046' \
        --sizes 'part=10 operator=3 replicate=3' --part part --operator operator
    """
    study = studies.gauge_rr(stored_or_published(result, published), **how)
    shown.result(study, study.table.reset_index())


@command(
    "precision",
    click.Argument(["arguments"], nargs=-1, metavar="[RESULT.json] [FACET=N]…"),
    PUBLISHED,
    options_of(
        "vcomp.studies:precision",
        left_out="res labels sizes",
        interval="How intervals are made: satterthwaite, auto, mls, robust, log, wald.  "
        "[default: satterthwaite]",
    ),
    PRINTED,
)
def precision(arguments: Sequence[str], published: Any, how: dict[str, Any], shown: Shown) -> None:
    r"""Print the precision of a measurement method, from repeatability to reproducibility.

    RESULT.json is a stored result of a fit; or give published components with the --sizes of
    their study and the --mean, or published mean squares. With FACET=N results are means of so
    many levels. CSV and JSON have a row for each condition.

    Examples
    --------
    vcomp precision fit.json --laboratory site
    vcomp precision fit.json day=2 run=1 replicate=2
    vcomp precision --components 'day=1.2 run:day=.5 Residual=1' \
        --sizes 'day=20 run=2 replicate=2' --mean 50
    """
    result, sizes = _result_and_sizes(arguments)
    study = studies.precision(
        stored_or_published(result, published), sizes=single_sizes(sizes), **how
    )
    shown.result(study, study.table.reset_index())
