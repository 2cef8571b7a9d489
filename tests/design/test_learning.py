"""Origins and spreads of the response and of the columns of the fixed part."""

import numpy as np
import pytest

from vcomp.design.learning import Centre
from vcomp.exceptions import DataError
from vcomp.formula import parse

FORMULA = parse("y ~ x + (1|g)")
CONSTANT = np.array([1.0, 0.0])


def centre(low, high, mean, constant=CONSTANT):
    """Return the centre of an intercept and a column with these ends and this mean."""
    columns = np.array([[1.0, low], [1.0, high], [1.0, mean]])
    return Centre.of(FORMULA, ("Intercept", "x"), constant, (-1.0, 1.0, 0.0), tuple(columns))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_spread_is_measured_from_the_mean_on_both_sides(sign):
    """A large mean is no spread; a spread of one side alone counts."""
    mean = sign * 1e36
    assert centre(mean - 1e25, mean + 1e25, mean).x_origin.tolist() == [0.0, mean]
    for low, high in ((-1e36, 1.0), (-1.0, 1e36)):
        with pytest.raises(DataError, match="column 'x' of the fixed part varies by 1e\\+36"):
            centre(low, high, 0.0)


def test_without_a_constant_spreads_are_measured_from_zero():
    mean = 1e36
    with pytest.raises(DataError, match="column 'x' of the fixed part"):
        centre(mean - 1e25, mean + 1e25, mean, constant=np.zeros(2))
