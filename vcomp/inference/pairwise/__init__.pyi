from .adjustments import CORRECTIONS as CORRECTIONS
from .adjustments import CorrectionName as CorrectionName
from .adjustments import adjusted as adjusted
from .pairwise_result import PairwiseComparisons as PairwiseComparisons
from .studentized_range import studentized_range_isf as studentized_range_isf
from .studentized_range import studentized_range_sf as studentized_range_sf
from .undistinguished import groups_of as groups_of
from .undistinguished import letters as letters
