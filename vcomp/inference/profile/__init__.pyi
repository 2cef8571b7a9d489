from .constrained import Constraint as Constraint
from .constrained import LinearConstraint as LinearConstraint
from .constrained import RatioConstraint as RatioConstraint
from .constrained import SmoothConstraint as SmoothConstraint
from .profile import NearbyEnds as NearbyEnds
from .profile import profile_fixed_effect as profile_fixed_effect
from .profile import profile_quantity as profile_quantity
from .trace import ProfileCurve as ProfileCurve
