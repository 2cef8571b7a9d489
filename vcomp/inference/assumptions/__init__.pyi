from .assessment import DiagnosedRows as DiagnosedRows
from .assessment import PredictedEffects as PredictedEffects
from .assessment import assess as assess
from .diagnosis import Diagnosis as Diagnosis
from .samples import excess_kurtosis as excess_kurtosis
from .samples import skewness as skewness
from .two_way_table import Projection as Projection
from .two_way_table import TwoWayTable as TwoWayTable
