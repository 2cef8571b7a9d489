"""``vcomp dstudy`` and ``vcomp tau``: D-studies, and the accuracy of rankings by other tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from vcomp.cli import output
from vcomp.cli.arguments import (
    EXAMPLES,
    alpha_option,
    command,
    components_argument,
    cut_scores,
    facets_argument,
    numbers_argument,
    single_sizes,
    sizes_argument,
    topic_counts,
    topics_option,
    with_options,
)
from vcomp.cli.output import check_picture, save
from vcomp.cli.score_commands import (
    format_option,
    formatted,
    read_scores,
    score_options,
    system_groups,
)
from vcomp.exceptions import check_one_of
from vcomp.ir.rank import RankOptions, TauVariant

plan_options = with_options(
    click.option(
        "--object", "object_", metavar="FACET", help="The object of measurement, such as p or d:p."
    ),
    click.option(
        "--fixed",
        multiple=True,
        metavar="FACET",
        help="A fixed facet: its levels are the whole universe.",
    ),
    click.option(
        "--universe", multiple=True, metavar="FACET=N", help="The size of a finite universe."
    ),
    click.option(
        "--within",
        multiple=True,
        metavar="FACET",
        help="Compare objects within the levels of this facet.",
    ),
)
"""Options for the object of measurement and the universe of generalization."""


def plan_of(
    object_: str | None, fixed: Sequence[str], universe: Sequence[str], within: Sequence[str]
) -> dict[str, Any]:
    """Return these options as arguments of a D-study, without those that were not given.

    Examples
    --------
    >>> plan_of("p", ["a,o"], ["i=500"], [])
    {'object': 'p', 'fixed': ['a', 'o'], 'universe': {'i': 500}}
    """
    given = {
        "object": object_,
        "fixed": facets_argument(fixed),
        "universe": single_sizes(universe),
        "within": facets_argument(within),
    }
    return {name: value for name, value in given.items() if value}


def allocation_text(
    study: Any,
    cost: str | None,
    budget: float | None,
    goal: float | None,
    coefficient: str,
    alternatives: Sequence[str],
    picture: Path | None = None,
    n_objects: int | None = None,
) -> str | None:
    """Return the best design for a budget or a goal, None if neither is given.

    Parameters
    ----------
    study : the D-study whose design comes first
    cost : prices as text
    budget, goal : one of them
    coefficient : to be maximised, or to reach the goal
    alternatives : other designs
    picture : where to draw the frontier
    n_objects : number of objects, if the cost depends on it
    """
    if cost is None:
        given: dict[str, Any] = {"--budget": budget, "--alternative": alternatives or None}
        given |= {"--plot": picture, "--n-objects": n_objects}
        lost = [name for name, value in given.items() if value is not None]
        if lost:
            raise click.UsageError(f"{lost[0]} needs --cost, such as --cost '50*topic + 1000'")
        return None
    if (budget is None) == (goal is None):
        raise click.UsageError("--cost needs one of --budget and --goal")
    if picture is not None:
        check_picture(str(picture))
    designs = [str(study.plan.design), *alternatives] if alternatives else None
    found = study.optimize(
        cost,
        budget=budget,
        goal=goal,
        coefficient=coefficient,
        designs=designs,
        n_objects=n_objects,
    )
    if picture is not None:
        save(found.plot(), str(picture))
    return str(found)


published_options = with_options(
    click.option("--components", metavar="TEXT", help="Published components: 'p=.0075 i=.016 …'."),
    click.option(
        "--mean-squares",
        metavar="TEXT",
        help="Published mean squares: 'p=.7485 i=1.127 …'; with --df or --sizes.",
    ),
    click.option(
        "--df", metavar="TEXT", help="Degrees of freedom of --mean-squares: 'p=32 i=47 …'."
    ),
    click.option(
        "--sizes",
        metavar="TEXT",
        help="Sizes of the published G-study, 'p=33 i=48 …': intervals follow from them.",
    ),
    click.option("--mean", type=float, metavar="X", help="Mean of the published scores."),
)
"""Options for published components or mean squares instead of a stored result."""


def published_of(
    components: str | None,
    mean_squares: str | None,
    df: str | None,
    sizes: str | None,
    mean: float | None,
) -> Any:
    """Return published components, or None if neither they nor mean squares are given.

    Parameters
    ----------
    components, mean_squares : one of them, as text
    df : degrees of freedom of the mean squares
    sizes : of the G-study
    mean : of the scores

    Raises
    ------
    click.UsageError
        If an option lacks the one that it belongs to, or both kinds are given.
    """
    import vcomp

    if components is None and mean_squares is None:
        given = {"--df": df, "--sizes": sizes, "--mean": mean}
        lost = [name for name, value in given.items() if value is not None]
        if lost:
            raise click.UsageError(f"{lost[0]} needs --components or --mean-squares")
        return None
    if components is not None and mean_squares is not None:
        raise click.UsageError("give one of --components and --mean-squares")
    form = "FACET=N such as p=33"
    counts = None if sizes is None else numbers_argument(sizes, "size", form)
    if components is not None:
        if df is not None:
            raise click.UsageError("--df needs --mean-squares; components need --sizes")
        return vcomp.from_components(components_argument(components), sizes=counts, mean=mean)
    assert mean_squares is not None
    squares = numbers_argument(mean_squares, "mean square", "NAME=MEAN-SQUARE such as p=.7485")
    degrees = None if df is None else numbers_argument(df, "df", "NAME=DF such as p=32")
    return vcomp.from_mean_squares(squares, df=degrees, sizes=counts, mean=mean)


def cut_score_text(study: Any, cut: str | None) -> str | None:
    """Return a table of Φ(λ) as text, or None without cut scores."""
    from vcomp import display

    if cut is None:
        return None
    table = study.phi_lambda(cut_scores(cut))
    ends = zip(table["low"], table["high"], strict=True)
    facets = list(table.columns[: table.columns.get_loc("cut")])
    cells = [[display.count(n) for n in table[f]] for f in facets]
    cells += [
        [display.number(float(c)) for c in table["cut"]],
        [display.coefficient(v) for v in table["estimate"]],
        [display.coefficient_interval(low, high) for low, high in ends],
    ]
    header = [*facets, "λ", "Φ(λ)", f"{display.level(study.alpha)} interval"]
    made = display.simple_table(
        list(zip(*cells, strict=True)), header, title="Decisions by a cut score λ"
    )
    return str(display.summary([made], ["Φ(λ): dependability of decisions by the cut score λ."]))


@command(epilog=EXAMPLES)
@click.argument("arguments", nargs=-1, metavar="[RESULT.json] [FACET=N,N…]…")
@published_options
@click.option("--design", metavar="TEXT", help="Design of the D-study, such as 'p x (a:i)'.")
@plan_options
@click.option(
    "--layout", type=click.Path(path_type=Path), help="A table of the planned observations."
)
@click.option("--goal", type=float, help="Also print the sizes that reach this coefficient.")
@click.option("--facet", metavar="FACET", help="With --goal: the facet whose size is sought.")
@click.option("--cut", metavar="X,X…", help="Cut scores λ: print the dependability Φ(λ).")
@click.option("--cost", metavar="TEXT", help="Prices, such as '50*topic + 2*topic:judge + 1000'.")
@click.option("--budget", type=float, help="With --cost: find the best design within it.")
@click.option(
    "--coefficient",
    help="With --cost: Erho2 (the default), Phi, rel_err_var or abs_err_var. With --goal "
    "alone: Erho2 or Phi, by default both.",
)
@click.option(
    "--alternative", "alternatives", multiple=True, help="With --cost: another design to compare."
)
@click.option("--n-objects", type=int, help="With --cost: number of objects measured.")
@click.option(
    "--plot", "picture", type=click.Path(path_type=Path), help="With --cost: draw the frontier."
)
@alpha_option
@click.option(
    "--interval",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="How intervals are made: auto, mls, robust, f, log, wald.",
)
def dstudy(
    arguments: Sequence[str],
    components: str | None,
    mean_squares: str | None,
    df: str | None,
    sizes: str | None,
    mean: float | None,
    design: str | None,
    layout: Path | None,
    goal: float | None,
    facet: str | None,
    cut: str | None,
    cost: str | None,
    budget: float | None,
    coefficient: str | None,
    alternatives: Sequence[str],
    n_objects: int | None,
    picture: Path | None,
    alpha: float,
    interval: str,
    **plan: Any,
) -> None:
    """Plan a D-study from a stored result, or from published components or mean squares.

    FACET=N are the sizes of the D-study. With published mean squares, or components and the
    --sizes of their G-study, the components are printed first, with intervals.
    """
    import vcomp

    files = [a for a in arguments if "=" not in a]
    if len(files) > 1:
        raise click.UsageError(f"{files[1]!r} is not a size; write FACET=N such as topic=50")
    published = published_of(components, mean_squares, df, sizes, mean)
    if len(files) + (published is not None) != 1:
        raise click.UsageError("give one of RESULT.json, --components and --mean-squares")
    if facet is not None and (goal is None or cost is not None):
        raise click.UsageError("--facet needs --goal, and cannot be used with --cost")
    if goal is None and cost is None and coefficient is not None:
        raise click.UsageError("--coefficient needs --goal, or --cost with --budget")
    n = sizes_argument([a for a in arguments if "=" in a])
    source: Any = published
    if published is None:
        source = vcomp.VarianceComponentsResults.from_json(Path(files[0]))
    study = source.dstudy(
        design, layout=layout, sizes=n, alpha=alpha, interval=interval, **plan_of(**plan)
    )
    cheapest = None if cost is None else goal
    shown = published is not None and (published.anova is not None or published.reason)
    texts = [
        str(published.summary(alpha, interval)) if shown else None,
        str(study.summary()),
        cut_score_text(study, cut),
        allocation_text(
            study, cost, budget, cheapest, coefficient or "Erho2", alternatives, picture, n_objects
        ),
    ]
    click.echo("\n\n".join(text for text in texts if text is not None))
    if goal is not None and cost is None:
        for name in ("Erho2", "Phi") if coefficient is None else (coefficient,):
            click.echo(str(study.required(goal, name, facet)))


@command("tau", epilog=EXAMPLES)
@score_options
@topics_option
@click.option(
    "--estimator",
    default="shrunken",
    show_default=True,
    metavar="NAME",
    help="How Eτ and Eτ_AP are estimated: shrunken, or urbano as published.",
)
@click.option(
    "--threshold",
    default=0.0,
    show_default=True,
    help="Largest difference of systems that count as equal.",
)
@click.option(
    "--variant",
    default="a",
    show_default=True,
    metavar="NAME",
    help="a or b: treat equal systems in Eτ as τ_a or τ_b does.",
)
@click.option(
    "--target",
    default="test",
    show_default=True,
    metavar="NAME",
    help="Intervals of the correlation of one test (test), or of its expectation (expectation).",
)
@click.option(
    "--interval",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="How intervals are made: draws; or independent, for independent swaps as published. "
    "auto means independent with --estimator urbano and --target test, else draws.",
)
@click.option(
    "--groups",
    metavar="COLUMN|FILE",
    help="Rank one system of each group, such as an organisation: a column of long data, or a CSV "
    "or Parquet file with a column of systems and one of groups.",
)
@alpha_option
@click.option(
    "--seed",
    "rng",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Seed of the intervals.",
)
@format_option
def tau_command(
    scores: Path | None,
    dataset: str | None,
    system: str | None,
    topic: str | None,
    score: str | None,
    drop_worst: float,
    topics: str | None,
    variant: TauVariant,
    groups: str | None,
    format_: str,
    **options: Any,
) -> None:
    """Estimate the expected correlation of a ranking by n topics with the true ranking.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score and columns for systems, topics and scores.
    """
    from vcomp import ir

    n = topic_counts(topics)
    matrix = read_scores(scores, dataset, system=system, topic=topic, score=score)
    options["drop_worst"] = drop_worst
    if groups is not None:
        options["groups"] = system_groups(groups, scores, dataset, system)
    check_one_of("variant", variant, ("a", "b"))
    tau = ir.expected_tau(matrix, n, variant=variant, **options)
    tau_ap = ir.expected_tau(matrix, n, variant="ap", **options)
    how = RankOptions(**{name: options[name] for name in ("estimator", "target", "interval")})
    text = output.rank_text(("topic",), tau, tau_ap, options["alpha"], how)
    click.echo(formatted(output.both_ranks(tau, tau_ap), format_, text))
