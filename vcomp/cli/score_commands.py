"""Commands on scores of systems on topics, of items and of documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import vcomp
from vcomp import data, display, ir
from vcomp.cli import output
from vcomp.cli.command_options import WORKERS, command, options_of
from vcomp.cli.inputs import (
    DATASET,
    SCORES,
    SystemScores,
    option,
    plain_numbers,
    read_matrix,
    sizes_argument,
    source_of,
)
from vcomp.cli.output import PAIRS, PICTURE, PRINTED, SHOWN, Shown
from vcomp.exceptions import DataError, PlanError, check_one_of

_OF_SCORES = "scores system topic score drop_worst"
"""Parameters that the argument for scores replaces."""


@command(
    "tau",
    SCORES,
    options_of(
        "vcomp.ir:expected_tau",
        left_out=f"{_OF_SCORES} groups",
        variant="a or b: treat equal systems in Eτ as τ_a or τ_b does.",
    ),
    option(
        "--groups",
        "Rank one system of each group, such as an organisation: a column of long data, or a "
        "CSV or Parquet file with a column of systems and one of groups.",
        metavar="COLUMN|FILE",
    ),
    PRINTED,
)
def tau(scores: SystemScores, how: dict[str, Any], groups: str | None, shown: Shown) -> None:
    """Estimate the expected correlation of a ranking by n topics with the true ranking.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score and columns for systems, topics and scores.

    Examples
    --------
    vcomp tau matrix.csv --topics 25,50,100
    vcomp tau scores.parquet --system run --groups organisation --format csv
    vcomp fit "score ~ (1|sys) + (1|topic)" scores.csv --tau
    """
    matrix = scores.matrix()
    how["drop_worst"] = scores.drop_worst
    if groups is not None:
        how["groups"] = scores.groups(groups)
    # Eτ_AP has a table of its own.
    check_one_of("variant", how.get("variant", "a"), ("a", "b"))
    of_tau = ir.expected_tau(matrix, **how)
    of_tau_ap = ir.expected_tau(matrix, **how | {"variant": "ap"})
    shown.table(
        output.both_ranks(of_tau, of_tau_ap),
        output.rank_text(
            ("topic",),
            of_tau,
            of_tau_ap,
            **{name: how[name] for name in ("alpha", "target", "interval") if name in how},
        ),
    )


@command(
    "accuracy",
    SCORES,
    option("--formula", "Long data of any design: fit this formula first.", metavar="TEXT"),
    option("--facet", "With --formula: the facet to plan.  [default: the second]", metavar="NAME"),
    options_of(
        "vcomp.ir:accuracy",
        left_out=_OF_SCORES,
        measures="Measures to estimate.  [default: tau,tau_ap,Erho2,Phi,rmse]",
        model="Split halves: the curve exp1, exp2 or logit.",
        trials="Number of subsets or pairs of halves of each size.",
    ),
    SHOWN,
)
def accuracy(
    scores: SystemScores, formula: str | None, facet: str | None, how: dict[str, Any], shown: Shown
) -> None:
    """Estimate the accuracy of tests with other numbers of topics, by several measures.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score and columns for systems, topics and scores.

    Examples
    --------
    vcomp accuracy matrix.csv --topics 25,50,100 --drop-worst .25 --plot accuracy.png
    vcomp accuracy scores.parquet --system run --measures tau,tau_ap,sens_abs --trials 50
    vcomp accuracy --dataset docsearch --formula "score ~ (1|sys*topic)" --topics 50,150
    vcomp accuracy matrix.csv --format csv > accuracy.csv

    Measures:
      by estimators    tau, tau_ap, Erho2, Phi, rmse, F
      by subsets       power_ratio, minor_conflicts, major_conflicts, swap_rate, p_value
      by split halves  sens_abs, sens_rel, d_rank
    """
    if formula is not None:
        result = _from_formula(formula, scores.of_any_design(), facet, **how)
    elif facet is not None:
        raise click.UsageError("--facet needs --formula; without it topics are sampled")
    else:
        result = ir.accuracy(scores.matrix(), drop_worst=scores.drop_worst, **how)
    shown.result(result)


def _from_formula(
    formula: str,
    source: Any,
    facet: str | None,
    n_topics: Sequence[float] | None = None,
    **how: Any,
) -> Any:
    res = vcomp.fit(formula, source)
    levels = dict(zip(res.design.facets, res.design.n_levels, strict=True))
    sampled = list(levels)[min(1, len(levels) - 1)] if facet is None else facet
    if n_topics is None and facet is None:
        return res.accuracy(**how)
    # An unknown facet has no levels; it is refused by name.
    n = levels.get(sampled, 1) if n_topics is None else n_topics
    return res.accuracy(sizes={sampled: n}, **how)


@command(
    "compare-systems",
    SCORES,
    options_of(
        "vcomp.ir:compare_systems", left_out=_OF_SCORES, n="--replicates", test="The test."
    ),
    PAIRS,
)
def compare_systems(scores: SystemScores, how: dict[str, Any], shown: Shown) -> None:
    """Test the differences between systems on the same topics, in pairs.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. CSV and JSON have a row for each pair.

    Examples
    --------
    vcomp compare-systems matrix.csv --test tukey --plot groups.png
    vcomp compare-systems scores.parquet --system run --systems bm25,rm3
    vcomp compare-systems matrix.csv --baseline bm25 --alternative greater --correction fdr_bh
    vcomp compare-systems matrix.csv --test permutation --replicates 100000 --format csv

    Tests:
      of single pairs     t, wilcoxon, sign, permutation, bootstrap
      of all pairs        tukey, randomised_tukey
    """
    shown.pairs(ir.compare_systems(scores.kept(), **how))


@command(
    "average-p-values",
    SCORES,
    options_of(
        "vcomp.ir:average_p_values",
        left_out=_OF_SCORES,
        bins=option(
            "--bins",
            "Bounds of the bins of differences, increasing; inf has no end.  [default: "
            "0,.01,.02,.03,.04,.05,.06,.08,.1,inf]",
            metavar="X,X…",
            callback=lambda _, __, text: None if text is None else _bounds(text),
        ),
    ),
    SHOWN,
)
def average_p_values(scores: SystemScores, how: dict[str, Any], shown: Shown) -> None:
    """Average the p-values of differences between systems, by their size and the topics.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. Up to the topics of the scores, p-values are
    measured on random subsets; beyond, they are forecasts. CSV and JSON have a row for each number
    of topics and bin.

    Examples
    --------
    vcomp average-p-values matrix.csv --topics 10,25,50,100 --plot p-values.png
    vcomp average-p-values --dataset docsearch --bins 0,.02,.05,.1,1 --test wilcoxon
    vcomp average-p-values scores.parquet --system run --sides 1 --format csv
    """
    shown.result(ir.average_p_values(scores.kept(), **how))


def _bounds(text: str) -> list[float]:
    return plain_numbers(text, f"--bins {text!r} are not numbers; write 0,.02,.05,inf")


@command(
    "diagnose",
    SCORES,
    option("--formula", "Long data of any design: diagnose this model.", metavar="TEXT"),
    option(
        "--object object_",
        "With --formula: the facet whose levels are correlated.  [default: the first]",
        metavar="NAME",
    ),
    options_of("vcomp:diagnose", left_out=_OF_SCORES, n="--draws"),
    SHOWN,
)
def diagnose(
    scores: SystemScores,
    formula: str | None,
    object_: str | None,
    how: dict[str, Any],
    shown: Shown,
) -> None:
    """Test the assumptions of a model, and say which numbers deviations matter for.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. Normality of effects and residuals, equal
    variances, correlations, additivity and outliers are tested.

    Examples
    --------
    vcomp diagnose matrix.csv --drop-worst .25 --plot assumptions.png
    vcomp diagnose scores.parquet --system run
    vcomp diagnose --dataset docsearch --formula "score ~ (1|sys*topic)"
    vcomp diagnose matrix.csv --format csv > tests.csv
    """
    if formula is not None:
        res = vcomp.fit(formula, scores.of_any_design())
        result = res.diagnose(object=object_, **how)
    elif object_ is not None:
        raise click.UsageError("--object needs --formula")
    else:
        result = vcomp.diagnose(scores.kept(), **how)
    shown.result(result)


# Items -------------------------------------------------------------------------------------------


@command(
    "items",
    click.Argument(["path"], required=False, type=click.Path(path_type=Path), metavar="[DATA]"),
    DATASET,
    options_of(
        "vcomp:item_analysis",
        name="columns",
        only="object item score",
        object="Long data: the column of objects (persons, systems).",
        item="Long data: the column of items.",
        score="Long data: the column of scores.",
    ),
    option("--transpose", "The matrix has items in rows.", is_flag=True),
    option(
        "--missing",
        "Missing scores: use pairs of columns, leave out incomplete objects, or stop.  "
        "[default: REML for the reliability, pairwise for the items]",
        type=click.Choice(["pairwise", "listwise", "raise"]),
    ),
    options_of("vcomp:item_analysis", left_out="scores object item score missing score_range"),
    option("--show", "Largest number of items to show.", type=click.IntRange(min=1), default=25),
    options_of("vcomp:reliability", name="interval", only="alpha"),
    option("--csv csv_file", "Store the table; - prints it.", metavar="FILE"),
    PICTURE,
)
def items(
    path: Path | None,
    dataset: str | None,
    columns: dict[str, Any],
    transpose: bool,
    missing: str | None,
    how: dict[str, Any],
    show: int,
    interval: dict[str, Any],
    csv_file: str | None,
    picture: str | None,
) -> None:
    """Estimate the reliability of a test and analyse its items, flagged ones first.

    DATA is a CSV or Parquet file: a matrix with a row for each object (person, system) and a
    column for each item, or long data with --object, --item and --score.

    Examples
    --------
    vcomp items answers.csv
    vcomp items runs.csv --object sys --item topic --score score
    vcomp items topic_by_system.csv --transpose --show 10
    """
    scores = source_of(path, dataset)
    if columns and transpose:
        raise click.UsageError("--transpose needs a matrix; the columns of long data are named")
    if not columns:
        scores = _items_of_matrix(path, transpose)
    if missing is not None:
        columns["missing"] = missing
    analysis = vcomp.item_analysis(scores, **columns, **how)
    if csv_file != "-":
        click.echo(f"{vcomp.reliability(scores, **columns, **interval).summary()}\n")
        click.echo(str(analysis.summary(show)))
    if csv_file is not None:
        output.write(analysis.table.to_csv().rstrip("\n"), csv_file)
    if picture is not None:
        output.save(analysis.plot(), picture)


def _items_of_matrix(path: Path | None, transpose: bool) -> Any:
    """Read a matrix with the items in columns."""
    if path is None:
        raise click.UsageError("a data set is long: give --object, --item and --score")
    scores = read_matrix(path)
    rows = str(scores.index.name).lower()
    if rows in data.ORIENTATIONS["item"].column_names and not transpose:
        raise DataError(
            f"the rows of {path.name!r} look like items, as they are called "
            f"{scores.index.name!r}: give --transpose"
        )
    return scores.T if transpose else scores


# Documents and assessors -------------------------------------------------------------------------


@command(
    "documents",
    click.Argument(["retrieved"]),
    click.Argument(["judgements"]),
    click.Argument(["sizes"], nargs=-1, metavar="[FACET=N,N]..."),
    options_of("vcomp.ir:document_universe", name="read", only="universe relevant_from name_by"),
    options_of(
        "vcomp.studies:per_document_study",
        left_out="universe options",
        measures="Set-based measures: precision, recall, F, utility, normalized_utility, "
        "scaled_utility, mean_score.  [default: F,utility,normalized_utility]",
        scores=option("--scores", "Of a document: utility, accuracy.", metavar="NAME"),
    ),
    SHOWN,
)
def documents(
    retrieved: str,
    judgements: str,
    sizes: Sequence[str],
    read: dict[str, Any],
    how: dict[str, Any],
    shown: Shown,
) -> None:
    """Compare the reliability of tests by set-based measures and by scores of all documents.

    RETRIEVED are runs in TREC's format (a folder, or a pattern in quotes), or a CSV or Parquet
    file with the columns system, topic and document. JUDGEMENTS are qrels, a file for each
    assessor, or a table with the columns assessor, topic, document and relevant. Sizes are of
    topic, assessor and document.

    Examples
    --------
    vcomp documents runs/ qrels.txt topic=50
    vcomp documents "runs/input.*" qrels/ topic=50 assessor=1,2 --measures F,utility
    vcomp documents retrieved.parquet judged.csv --universe all --scores accuracy
    """
    n: dict[str, Any] = dict(sizes_argument(sizes))
    unknown = [name for name in n if name not in ("topic", "assessor", "document")]
    if unknown:
        raise PlanError(f"sizes are of topic, assessor and document, not of {unknown[0]!r}")
    universe = ir.document_universe(retrieved, judgements, **read)
    shown.result(vcomp.ir.per_document_study(universe, **how, **n))


@command(
    "assessors",
    click.Argument(["path"], required=False, type=click.Path(path_type=Path), metavar="[SCORES]"),
    DATASET,
    options_of(
        "vcomp.studies:assessor_study",
        left_out="scores",
        system="The column of systems.",
        topic="The column of topics.",
        role="The column of roles.  [default: role, if any]",
        assessor="The column of individuals.  [default: assessor, if any]",
        interval="How intervals are made.",
    ),
    PRINTED,
)
def assessors(path: Path | None, dataset: str | None, how: dict[str, Any], shown: Shown) -> None:
    """Decide whether assessor error is systematic (roles, individuals) or idiosyncratic.

    SCORES is a CSV or Parquet file with a row for each system, topic and assessment. CSV and JSON
    have a row for each source of error.

    Examples
    --------
    vcomp assessors scores.csv
    vcomp assessors scores.parquet --response F --system run --assessor judge
    """
    study = vcomp.ir.assessor_study(source_of(path, dataset, "SCORES"), **how)
    shown.result(study, study.sources.rename_axis("source").reset_index())


# Simulation --------------------------------------------------------------------------------------


@command(
    "simulate",
    SCORES,
    option(
        "--topics",
        "Number of topics of each collection.",
        type=click.IntRange(min=1),
        required=True,
        metavar="N",
    ),
    option(
        "--collections size",
        "Number of collections.",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
    ),
    options_of(
        "vcomp.ir:fit_collection",
        left_out=f"{_OF_SCORES} systems",
        margins="Distribution of topic effects and residuals: kernel or normal. Of scores without "
        "effects: truncated_normal, beta, truncated_kernel, beta_kernel, auto; with --support "
        "beta_binomial or discrete_kernel.",
        random_sampling=option(
            "--non-random-sampling random_sampling",
            "Topics of a collection are mostly hard, easy or medium, not a random sample.",
            flag_value=False,
            is_flag=True,
            default=None,
        ),
        support=option(
            "--support",
            "Possible scores: P@20, RR@10, RR, or 0,0.5,1.",
            metavar="TEXT",
            callback=lambda _, __, text: _support(text),
        ),
        df="--copula-df",
    ),
    option("--seed rng", "Seed of the draws.", default=0, metavar="N"),
    WORKERS,
    option("--out", "File of the scores, .parquet or .csv.", required=True, metavar="FILE"),
    option(
        "--true-means",
        "File of the true mean of each system; - for the screen.  [default: OUT with .means.csv]",
        metavar="FILE",
    ),
    option("--compare", "Compare the collections with the original.", is_flag=True),
)
def simulate(
    scores: SystemScores,
    topics: int,
    size: int,
    how: dict[str, Any],
    rng: int,
    workers: int,
    out: str,
    true_means: str | None,
    compare: bool,
) -> None:
    r"""Simulate collections with the same systems and new topics.

    SCORES is a CSV or Parquet file: a matrix with a row for each topic and a column for each
    system, or long data with a row for each score. The output is long data with the columns
    collection, topic, system and score. The true mean score of each system is written to another
    file.

    Examples
    --------
    vcomp simulate matrix.csv --topics 50 --collections 100 --seed 1 --out new.parquet
    vcomp simulate matrix.csv --topics 50 --margins normal --heteroscedasticity 0 --out new.csv
    vcomp simulate scores.csv --system run --margins discrete_kernel --support P@20 \
        --topics 100 --out new.parquet --compare
    """
    from vcomp.ir.simulate import check_path, write_collections

    target = check_path(out)
    means_file = str(target.with_suffix(".means.csv")) if true_means is None else true_means
    if means_file != "-" and data.target_of(means_file) == data.target_of(target):
        raise PlanError(f"scores and true means go to two files, not both to {means_file!r}")
    if compare and topics < 2:
        raise PlanError(f"--compare needs two topics or more, not {topics}")
    simulator = ir.fit_collection(scores.matrix(), drop_worst=scores.drop_worst, **how)
    original = ir.OriginalCollection(simulator.scores) if compare else None
    indicators: list[Any] = []

    def each(some: Any) -> None:
        if original is not None:
            indicators.append(original.indicators(some.scores))

    n_rows = write_collections(
        simulator, target, topics, size, rng=rng, workers=workers, progress=None, each=each
    )
    output.write(str(simulator.true_means.to_csv()).rstrip("\n"), means_file)
    parts = [str(simulator.summary())]
    if indicators:
        import numpy as np

        values = np.concatenate(indicators)
        parts.append(str(ir.SimulationComparison(values, topics, len(simulator.scores)).summary()))
    what = "collection" if size == 1 else "collections"
    parts.append(
        f"{display.count(size)} {what} of {display.count(topics)} topics × "
        f"{display.count(simulator.n_systems)} systems: {display.count(n_rows)} rows in {out}; "
        f"true means in {means_file}."
    )
    click.echo("\n\n".join(parts))


def _support(text: str | None) -> Any:
    """Return the name of a support, or its values."""
    if text is None or "," not in text:
        return text
    return plain_numbers(
        text, f"--support {text!r} is not a list of scores; write 0,0.5,1 or a name such as P@20"
    )
