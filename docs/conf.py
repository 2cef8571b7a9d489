"""Sphinx configuration: ``sphinx-build -W --keep-going -b html docs build/site``."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import vcomp
from vcomp.cli.main import cli

project = "vcomp"
author = "The vcomp developers"
copyright = "The vcomp developers"  # noqa: A001 -- Sphinx's name
version = release = vcomp.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "checks",
    "docstrings",
    "terms",
]
exclude_patterns = [
    "_build",
    "gallery",
    "jupyter_execute",
    "**/sg_execution_times.rst",
    "sg_execution_times.rst",
    "pictures/**.ipynb",
    "pictures/**.json",
    "pictures/**.py",
    "pictures/**.md5",
    "pictures/**.zip",
]
# The first is the one of the pages that autosummary writes.
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}
nitpicky = False

# Mathematics: docutils writes MathML, which browsers draw without a script or a network.
html_math_renderer = "mathml"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# Pages with code are run when the site is built; an exception fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
os.environ.setdefault("COLUMNS", "100")

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "pictures",
    "nested_sections": False,  # one index with a heading for each folder
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "abort_on_example_error": True,
}

templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["vcomp.css"]
html_theme = "pydata_sphinx_theme"
html_title = f"vcomp {version}"
html_show_sourcelink = False
html_copy_source = False
# Links to the repository and its issues appear when pyproject.toml has their addresses, as
# "Repository" and "Issues" in [project.urls].
_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))[
    "project"
]
html_context = {"addresses": _project.get("urls", {})}
html_theme_options = {
    "logo": {"text": f"vcomp {version}"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_persistent": ["search-button-field"],
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "show_prev_next": True,
    "pygments_light_style": "tango",
    "pygments_dark_style": "github-dark",
    "footer_start": ["copyright"],
    "footer_end": ["addresses"],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": []}


def _compile(app: Any) -> None:
    """Compile the kernels, so that no page says that it waits for this."""
    with contextlib.redirect_stdout(io.StringIO()):
        cli(["warm-up"], standalone_mode=False)


def setup(app: Any) -> None:
    """Connect the compilation to the build."""
    app.connect("builder-inited", _compile)
