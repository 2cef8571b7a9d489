"""The result of :mod:`~vcomp.ctt.items`: a table of the items, a picture, and a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vcomp import display

if TYPE_CHECKING:
    import pandas as pd

_SHOWN = 25
"""Items that a summary shows."""

_DECIMALS = 6


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ItemAnalysis(display.Printed):
    """One row per item, those to look at first; ``print`` it.

    Columns and rows are those of :attr:`table`: ``analysis["item_rest"]``, ``len(analysis)``.

    Attributes
    ----------
    table : index ``item``, with the columns

        ``n``
            number of scores
        ``difficulty``
            mean score: an easy item has a high one
        ``share_of_range``
            where a range was given, the mean as a share of it
        ``variance``
            of the scores, with n − 1
        ``item_total``
            correlation with the total, of which the item is a part
        ``item_rest``
            correlation with the total of the other items (corrected item-total correlation)
        ``alpha_if_dropped``, ``alpha_change``
            Cronbach's alpha without the item, and its difference from that of all items
        ``flagged``, ``reason``
            whether there is something to look at, and what; also why a number is nan
    cronbach_alpha : Cronbach's alpha of all items; nan where it cannot be estimated
    n_objects, n_items : that were analysed
    low : items with a lower item-rest correlation are flagged
    missing : how missing cells were treated, in words; empty where there are none
    notes : what a reader should know of these numbers

    Examples
    --------
    >>> from vcomp.ctt import item_analysis
    >>> found = item_analysis([[3, 2, 1], [4, 4, 2], [5, 4, 1], [7, 6, 0]])
    >>> found.flagged["reason"].to_dict()
    {2: 'negative item-rest; α higher without it'}
    >>> found
    ItemAnalysis(items=3, objects=4, flagged=1)
    """

    table: pd.DataFrame
    cronbach_alpha: float
    n_objects: int
    n_items: int
    low: float
    missing: str
    notes: tuple[str, ...] = ()

    @property
    def flagged(self) -> pd.DataFrame:
        """The rows of the flagged items."""
        rows: pd.DataFrame = self.table[self.table["flagged"]]
        return rows

    @property
    def columns(self) -> pd.Index:
        """Names of the columns."""
        return self.table.columns

    def __getitem__(self, column: str) -> pd.Series:
        return self.table[column]

    def __len__(self) -> int:
        return len(self.table)

    def summary(self, max_items: int = _SHOWN) -> Any:
        """Return a printable summary: text with ``print``, HTML in a notebook.

        Parameters
        ----------
        max_items : rows that are shown at most, the flagged ones first

        Returns
        -------
        statsmodels.iolib.summary.Summary
        """
        frame = self.table.iloc[: max(int(max_items), 0)]
        cells = {"n": [display.count(n) for n in frame["n"]]}
        cells["difficulty"] = display.fixed(frame["difficulty"], significant=3)
        if "share_of_range" in frame:
            cells["of range"] = [display.percent(x) for x in frame["share_of_range"]]
        cells["variance"] = display.fixed(frame["variance"], significant=3)
        for header, name in (("item-total", "item_total"), ("item-rest", "item_rest")):
            cells[header] = display.fixed(frame[name], decimals=3)
        # One item of a thousand changes α in the fifth decimal.
        largest = [np.nanmax(np.abs([*frame["alpha_change"], 0.0]))]
        decimals = min(max(display.decimals_for(largest, 2), 3), _DECIMALS)
        cells["α if dropped"] = display.fixed(frame["alpha_if_dropped"], decimals=decimals)
        cells["look at"] = list(frame["reason"])
        title = (
            f"{display.count(self.n_items)} items, {display.count(self.n_objects)} objects; "
            f"α = {display.coefficient(self.cronbach_alpha)}; "
            f"{display.count(len(self.flagged))} flagged"
        )
        table = display.column_table(
            cells,
            title=title,
            stubs=[str(label) for label in frame.index],
            align="r" * (len(cells) - 1) + "l",
        )
        return display.summary([table], self._explanations(len(frame)))

    def _explanations(self, n_shown: int) -> list[str]:
        lines = [] if not self.missing else [self.missing]
        if n_shown < len(self):
            lines.append(
                f"{display.count(len(self) - n_shown)} more items are in .table, "
                f"{display.count(max(len(self.flagged) - n_shown, 0))} of them flagged."
            )
        lines.append(
            "Difficulty is the mean score: easy items have a high one. item-rest: correlation "
            "with the total of the other items."
        )
        if len(self.flagged):
            lines.append(
                "Flagged: item-rest below "
                f"{display.number(self.low)}, no variance, or a higher α without the item. Look "
                "at them before dropping any: α chosen by dropping is too high for new scores."
            )
        return lines + list(self.notes)

    def plot(self, ax: Any | None = None, max_labels: int = 12) -> Any:
        """Draw item-rest correlations over difficulties, flagged items with their names.

        Parameters
        ----------
        ax : matplotlib axes to draw on; those of a new figure if None
        max_labels : names at most, of the items with the lowest correlations

        Returns
        -------
        matplotlib.axes.Axes

        Raises
        ------
        VcompError
            If matplotlib is not installed.
        """
        from vcomp import plots

        return plots.items(self.table, low=self.low, max_labels=max_labels, ax=ax)

    def __repr__(self) -> str:
        return (
            f"ItemAnalysis(items={self.n_items}, objects={self.n_objects}, "
            f"flagged={len(self.flagged)})"
        )
