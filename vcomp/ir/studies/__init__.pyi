from .assessor_error import AssessorStudy as AssessorStudy
from .assessor_error import assessor_study as assessor_study
from .per_document import per_document_study as per_document_study
