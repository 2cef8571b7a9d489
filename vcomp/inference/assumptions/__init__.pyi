from .assessment import DiagnosedRows as DiagnosedRows
from .assessment import PredictedEffects as PredictedEffects
from .assessment import assess as assess
from .crossed_table import CrossedTable as CrossedTable
from .diagnosis import Diagnosis as Diagnosis
from .projection import Projection as Projection
from .samples import excess_kurtosis as excess_kurtosis
from .samples import skewness as skewness
