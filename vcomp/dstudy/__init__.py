"""D-studies: how reliable a planned test would be, and how large it has to be."""

from vcomp.dstudy.conduct import dstudy, project
from vcomp.dstudy.plan import DStudyPlan, gstudy_design, make_plans
from vcomp.dstudy.published import PublishedComponents, from_components
from vcomp.dstudy.requirement import Requirement, required_size
from vcomp.dstudy.sizes import Counts
from vcomp.dstudy.study import DStudy
from vcomp.dstudy.universe import Universe
from vcomp.notation import Design, parse_design

__all__ = [
    "Counts",
    "DStudy",
    "DStudyPlan",
    "Design",
    "PublishedComponents",
    "Requirement",
    "Universe",
    "dstudy",
    "from_components",
    "gstudy_design",
    "make_plans",
    "parse_design",
    "project",
    "required_size",
]
