from .assessor_error import AssessorStudy as AssessorStudy
from .assessor_error import assessor_study as assessor_study
from .comparison import MeasureComparison as MeasureComparison
from .measured import compare_measures as compare_measures
from .per_document import per_document_study as per_document_study
from .subsample import subsample_study as subsample_study
