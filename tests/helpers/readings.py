"""Models, G-studies and sums of data that are read in a way of one's own."""

from dataclasses import fields

from patsy import EvalEnvironment

from vcomp.data.reading import Reading
from vcomp.data.row_columns import RowColumns
from vcomp.formula import parse
from vcomp.model.accumulated import AccumulatedStatistics, cell_sums_of
from vcomp.model.gstudy_model import claimed_model
from vcomp.model.model import VarianceComponentsModel
from vcomp.statistics.of_data import read_data


def reading_of(environment, options):
    """Return the reading of options, which are those of ``Reading`` and ``RowColumns``."""
    of_rows = {f.name for f in fields(RowColumns)}.intersection(options)
    columns = RowColumns(**{name: options[name] for name in of_rows})
    others = {name: value for name, value in options.items() if name not in of_rows}
    return Reading(environment, row_columns=columns, **others)


def model_of(formula, data, residual=None, **options):
    """Return the model of data that are read as the options of ``Reading`` say."""
    reading = reading_of(EvalEnvironment.capture(1), options)
    parsed = parse(formula, residual=residual)
    return VarianceComponentsModel(formula, read_data(parsed, data, reading))


def study_of(design, data, response="score", facets=None, method="reml", **options):
    """Return a G-study; options of ``Reading`` say how data are read, others are of the fit."""
    of_reading = {f.name for f in fields(Reading)}.intersection(options)
    reading = Reading(
        EvalEnvironment.capture(1), **{name: options.pop(name) for name in of_reading}
    )
    return claimed_model(design, response, data, facets, reading).fit(method, **options)


def accumulated(formula, data, residual=None, **options):
    """Return the statistics of data that are read as the options of ``Reading`` say."""
    reading = reading_of(EvalEnvironment.capture(1), options)
    return AccumulatedStatistics(cell_sums_of(formula, data, reading, residual))
