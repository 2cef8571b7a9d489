from .cells import add_to_cells as add_to_cells
from .cells import merge_cells as merge_cells
from .cells import squares_in_strata as squares_in_strata
