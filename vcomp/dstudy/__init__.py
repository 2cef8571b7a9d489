"""D-studies: how reliable a planned test would be, and how large it has to be."""

from vcomp.dstudy.allocation import AllocatedDesign, Allocation, Cost, Stability, optimize
from vcomp.dstudy.conduct import dstudy, project
from vcomp.dstudy.plan import DStudyPlan, gstudy_design, make_plans
from vcomp.dstudy.published import PublishedComponents, from_components
from vcomp.dstudy.requirement import Requirement, required_size
from vcomp.dstudy.sizes import Counts
from vcomp.dstudy.study import DStudy
from vcomp.dstudy.universe import Universe
from vcomp.notation import (
    Design,
    Effect,
    design_effects,
    design_formula,
    expected_mean_squares,
    parse_design,
)

__all__ = [
    "AllocatedDesign",
    "Allocation",
    "Cost",
    "Counts",
    "DStudy",
    "DStudyPlan",
    "Design",
    "Effect",
    "PublishedComponents",
    "Requirement",
    "Stability",
    "Universe",
    "design_effects",
    "design_formula",
    "dstudy",
    "expected_mean_squares",
    "from_components",
    "gstudy_design",
    "make_plans",
    "optimize",
    "parse_design",
    "project",
    "required_size",
]
