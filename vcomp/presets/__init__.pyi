from .gauge import GaugeStudy as GaugeStudy
from .gauge import gauge_rr as gauge_rr
from .method_precision import Precision as Precision
from .method_precision import precision as precision
