from .constraints import Constraint as Constraint
from .constraints import LinearConstraint as LinearConstraint
from .constraints import RatioConstraint as RatioConstraint
from .constraints import SmoothConstraint as SmoothConstraint
from .nearby import NearbyEnds as NearbyEnds
from .profile import profile_fixed_effect as profile_fixed_effect
from .profile import profile_quantity as profile_quantity
from .trace import ProfileCurve as ProfileCurve
