from .pair_tests import Alternative as Alternative
from .pair_tests import Outcome as Outcome
from .pair_tests import PairOptions as PairOptions
from .pair_tests import Zeros as Zeros
from .system_comparison import TESTS as TESTS
from .system_comparison import SystemTest as SystemTest
from .system_comparison import compare_systems as compare_systems
from .system_comparison import outcome_of as outcome_of
