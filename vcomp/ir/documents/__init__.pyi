from .document_universe import DocumentUniverse as DocumentUniverse
from .document_universe import check_universe as check_universe
from .perdoc import NORMALIZED as NORMALIZED
from .perdoc import SET_MEASURES as SET_MEASURES
from .perdoc import measured_sets as measured_sets
from .perdoc import set_measures as set_measures
