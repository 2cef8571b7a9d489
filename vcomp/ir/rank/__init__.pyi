from .correlation import RankInterval as RankInterval
from .correlation import RankMethod as RankMethod
from .correlation import usual_interval as usual_interval
from .of_scores import paired_differences as paired_differences
from .paired import PairedDifferences as PairedDifferences
from .paired import difference_variances as difference_variances
from .rank_accuracy import expected_tau as expected_tau
from .rank_accuracy import expected_tau_ap as expected_tau_ap
