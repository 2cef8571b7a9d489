from .document_universe import NORMALIZED as NORMALIZED
from .document_universe import SET_MEASURES as SET_MEASURES
from .document_universe import check_universe as check_universe
from .document_universe import measured_sets as measured_sets
