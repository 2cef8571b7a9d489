from .interval_ends import lower_limits as lower_limits
from .interval_ends import ratios_at_zero as ratios_at_zero
from .nested_strata import Strata as Strata
from .nested_strata import Tree as Tree
from .nested_strata import maximise_nested as maximise_nested
