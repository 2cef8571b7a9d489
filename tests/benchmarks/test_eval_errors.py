"""What the page on errors of comparisons says of the stored rates."""

import numpy as np
import pandas as pd

from benchmarks.eval_errors import LAYOUTS, RESULTS

TABLE = pd.read_csv(RESULTS).query("step == 0")


def above(method):
    """Return the rates of a method that are more than three standard errors above 5 %."""
    rows = TABLE[TABLE["method"] == method]
    assert len(rows) == 6 * len(LAYOUTS)
    return rows[rows["false"] > 0.05 + 3.0 * np.sqrt(0.05 * 0.95 / rows["data_sets"])]


def test_studies_keep_their_level():
    assert above("study").empty
    assert above("own errors").empty


def test_one_error_of_all_pairs_fails_for_many_models_with_heavy_tails():
    (row,) = above("mixed model").itertuples()
    assert (row.models, row.prompts, row.scores, row.missing) == (40, 1, "t", 0.0)
