"""Figures 4 to 11 of Urbano (2016), drawn from the rows of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bias_study.cells import COLLECTIONS, SIZES
from benchmarks.bias_study.summarise import PANELS, Bias, Box, Panel, Reliability
from vcomp.plots.canvas import COLOURS, GREY, PAD, tidy_axes

FIGURES = {
    4: "Scores, rankings and distributions of simulated collections, beside the original",
    5: "Variance components and correlations of simulated collections, less the original's",
    6: "Bias of estimates of τ (above) and τ_AP (below) of collections themselves",
    7: "Bias of estimates of the sensitivities of collections themselves",
    8: "Bias of estimates of Eρ², Φ and F of collections themselves",
    9: "Bias of estimates of τ and τ_AP of tests of n′ topics, from collections of n",
    10: "Bias of estimates of the sensitivities of tests of n′ topics, from collections of n",
    11: "Bias of estimates of Eρ², Φ and F of tests of n′ topics, from collections of n",
}

SYMBOLS = {
    "mu_s": "mean score, deviation",
    "tau_ap": "τ$_{AP}$",
    "w2_t": "ω² of topic effects",
    "w2_E": "ω² of residuals",
    "var_s": "share of σ²(s), deviation",
    "var_t": "share of σ²(t), deviation",
    "var_st": "share of σ²(st), deviation",
    "sd_var": "s.d. of variances, deviation",
    "cor": "correlation of correlations",
    "tau": "τ",
    "sens_abs": "sens$_{abs}$",
    "sens_rel": "sens$_{rel}$",
    "Erho2": "Eρ²",
    "Phi": "Φ",
    "F": "F (power)",
}
_SPLITS = {
    "random": ("not random", "random sampling"),
    "homoscedastic": ("heteroscedastic", "homoscedastic"),
    "uncorrelated": ("correlated", "uncorrelated effects"),
}
_MODELS = {"exp1": COLOURS[0], "exp2": COLOURS[2], "logit": COLOURS[4], "": COLOURS[1]}
_STARTS = (5, 10, 20, 50, 100, 200)
_TICKS = (5, 20, 50, 200, 500)
_DPI = 80
_PALETTE = 256
_TRUTH = "original"


def draw_all(
    boxes: Sequence[Box],
    biases: Sequence[Bias],
    reliabilities: Sequence[Reliability],
    folder: Path,
) -> list[int]:
    """Draw all figures that there are numbers of, and return theirs.

    Accuracy is measured against the means of the original, as in the paper.
    """
    folder.mkdir(parents=True, exist_ok=True)
    measures = {
        6: ("tau", "tau_ap"),
        7: ("sens_abs", "sens_rel"),
        8: ("Erho2", "Phi", "F"),
    }
    drawn = []
    for number in (4, 5):
        _save(_box_figure([b for b in boxes if b.figure == number]), number, folder)
        drawn.append(number)
    for number, names in measures.items():
        own = [b for b in biases if b.truth == _TRUTH and measure_of(b.estimator) in names]
        others = [
            r for r in reliabilities if r.truth == _TRUTH and measure_of(r.estimator) in names
        ]
        if own:
            _save(_bias_figure(own, names), number, folder)
            _save(_reliability_figure(others, names), number + 3, folder)
            drawn += [number, number + 3]
    return sorted(drawn)


def measure_of(estimator: str) -> str:
    """Return the measure that an estimator of a table is of."""
    if estimator in ("Etau", "Etau_ap"):
        return estimator[1:]
    return estimator.partition(".")[0]


def _save(figure: Any, number: int, folder: Path) -> None:
    """Write a picture with a palette, a third as large as one without."""
    from io import BytesIO

    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=_DPI)
    with Image.open(drawn) as image:
        reduced = image.convert("RGB").quantize(_PALETTE)
    reduced.save(folder / f"figure{number}.png", optimize=True)


def _new(rows: int, columns: int, width: float, height: float, **options: Any) -> Any:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=PAD, h_pad=PAD)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _box_figure(boxes: Sequence[Box]) -> Any:
    panels = [panel for panel in PANELS if panel.figure == boxes[0].figure]
    figure, axes = _new(3, 2, 9.5, 9.0)
    for ax, panel in zip(axes.ravel(), panels, strict=True):
        _box_panel(ax, panel, [b for b in boxes if _is_of(b, panel)])
    return figure


def _is_of(box: Box, panel: Panel) -> bool:
    own = (box.indicator, box.by, box.split)
    return own == (panel.indicator, panel.by, panel.split)


def _box_panel(ax: Any, panel: Panel, boxes: Sequence[Box]) -> None:
    groups = list(dict.fromkeys(b.group for b in boxes))
    for held, colour in ((False, COLOURS[1]), (True, COLOURS[0])):
        some = [b for b in boxes if b.held == held]
        stats = [
            {
                "med": b.p50, "q1": b.p25, "q3": b.p75, "whislo": b.p5, "whishi": b.p95,
                "mean": b.mean, "fliers": [],
            }
            for b in some
        ]  # fmt: skip
        places = [groups.index(b.group) + (0.2 if held else -0.2) for b in some]
        line = {"color": colour}
        ax.bxp(
            stats, positions=places, widths=0.32, showfliers=False, showmeans=True,
            boxprops=line, whiskerprops=line, capprops=line,
            medianprops={"color": colour, "linewidth": 2.0},
            meanprops={"marker": "x", "markeredgecolor": "black", "markersize": 4},
        )  # fmt: skip
        ax.plot([], [], color=colour, label=_SPLITS[panel.split][held])
    tidy_axes(ax, "y")
    if panel.indicator in ("w2_t", "w2_E"):
        ax.set_yscale("log")
    elif panel.indicator not in ("tau_ap", "cor"):
        ax.axhline(0.0, color=GREY, linewidth=0.8)
    ax.set_xticks(range(len(groups)), [_short(group) for group in groups])
    ax.set_xlabel("n" if panel.by == "n" else "")
    ax.set_ylabel(SYMBOLS[panel.indicator])
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 0.98))


def _bias_figure(biases: Sequence[Bias], measures: Sequence[str]) -> Any:
    collections = list(dict.fromkeys(b.collection for b in biases))
    shape = len(measures), len(collections)
    figure, axes = _new(*shape, 11.0, 2.7 * len(measures), sharex=True, sharey="row")
    for row, measure in zip(axes, measures, strict=True):
        for ax, collection in zip(row, collections, strict=True):
            _axis(ax)
            own = [
                b
                for b in biases
                if b.collection == collection and measure_of(b.estimator) == measure
            ]
            for estimator in dict.fromkeys(b.estimator for b in own):
                line = sorted((b for b in own if b.estimator == estimator), key=lambda b: b.n)
                _line(ax, [b.n for b in line], line, _name(estimator), _colour(estimator))
            if ax in axes[0]:
                ax.set_title(_short(collection))
            if ax in axes[-1]:
                ax.set_xlabel("n")
        row[0].set_ylabel(f"bias, {SYMBOLS[measure]}")
        if len(row[0].lines) > 2:
            row[-1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _reliability_figure(rows: Sequence[Reliability], measures: Sequence[str]) -> Any:
    names = {m: list(dict.fromkeys(r.estimator for r in rows if measure_of(r.estimator) == m))
             for m in measures}  # fmt: skip
    wide = [names[m] for m in measures]
    grid = wide if len(wide[0]) > 1 else [[name for row in wide for name in row]]
    figure, axes = _new(len(grid), len(grid[0]), 11.0, 2.9 * len(grid), sharex=True)
    for ax, estimator in zip(axes.ravel(), (n for row in grid for n in row), strict=True):
        _axis(ax)
        own = [r for r in rows if r.estimator == estimator]
        starts = [n for n in _STARTS if any(r.n == n for r in own)]
        for k, start in enumerate(starts):
            line = sorted((r for r in own if r.n == start), key=lambda r: r.target)
            ax.plot(
                [r.target for r in line], [r.bias for r in line],
                color=COLOURS[k % len(COLOURS)], linewidth=1.4, label=f"n = {start}",
            )  # fmt: skip
        same = sorted((r for r in own if r.n == r.target), key=lambda r: r.n)
        ax.plot([r.n for r in same], [r.bias for r in same], "--", color="black", label="n = n′")
        ax.set_title(_title(estimator), fontsize=10)
        if ax in axes[-1]:
            ax.set_xlabel("n′")
    for row in axes:
        row[0].set_ylabel("bias")
        if measures[-1] != "F":
            low = min(ax.get_ylim()[0] for ax in row)
            high = max(ax.get_ylim()[1] for ax in row)
            for ax in row:
                ax.set_ylim(low, high)
    axes[0, -1].legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _axis(ax: Any) -> None:
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log")
    ax.set_xlim(SIZES[0], SIZES[-1])
    ax.set_xticks(_TICKS, [str(n) for n in _TICKS])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    tidy_axes(ax, "y")


def _line(ax: Any, n: Sequence[int], rows: Sequence[Bias], label: str, colour: str) -> None:
    """Draw a line with a band of two Monte Carlo errors."""
    bias = [row.bias for row in rows]
    dash = "--" if label == "logit" else "-"  # else it would hide exp1
    ax.plot(n, bias, dash, color=colour, label=label, linewidth=1.6)
    low = [row.bias - 2.0 * row.error for row in rows]
    high = [row.bias + 2.0 * row.error for row in rows]
    ax.fill_between(n, low, high, color=colour, alpha=0.15, linewidth=0.0)


def _colour(estimator: str) -> str:
    return _MODELS[estimator.partition(".")[2]]


def _name(estimator: str) -> str:
    model = estimator.partition(".")[2]
    return model or {**SYMBOLS, "Etau": "Eτ", "Etau_ap": "Eτ$_{AP}$"}[estimator]


def _title(estimator: str) -> str:
    measure, _, model = estimator.partition(".")
    return f"{SYMBOLS[measure]}, {model}" if model else _name(estimator)


def _short(group: str) -> str:
    """Return the name of a collection without its year."""
    return group[:-4].capitalize() if group in COLLECTIONS else group
