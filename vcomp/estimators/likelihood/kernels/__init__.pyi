from .small_matrices import add_embedded as add_embedded
from .small_matrices import fill_inside as fill_inside
from .small_matrices import invert_positive as invert_positive
