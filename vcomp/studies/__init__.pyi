from .comparison import MeasureComparison as MeasureComparison
from .measured import compare_measures as compare_measures
from .planned import options_of_fit as options_of_fit
from .planned import required_facet as required_facet
from .subsample import subsample_study as subsample_study
